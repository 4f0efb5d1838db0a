"""What runs are told, and the files that a probe shares."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import pytest

from compatcheck.lab.probes.catalog import configured_run
from compatcheck.lab.probes.probe import find_probe, find_shared


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", {}),
        ("packing:true", {"packing": True}),
        ("beta:0.04+loss_type:ipo", {"beta": 0.04, "loss_type": "ipo"}),
        ("a.b:1+a.c:cpu+d", {"a": {"b": 1, "c": "cpu"}, "d": True}),
    ],
)
def test_texts_tell_options_by_their_path(text: str, told: dict[str, Any]) -> None:
    assert configured_run._read(text) == told


def test_a_type_comes_before_what_it_is_told() -> None:
    assert configured_run._read_typed("lora+use_dora:true+r:8") == ("lora", {"use_dora": True, "r": 8})


@pytest.mark.parametrize(
    ("parameters", "packages"),
    [
        ({"trainer": "dpo"}, {"transformers", "accelerate", "trl"}),
        ({"trainer": "hf", "adapter": "ia3"}, {"transformers", "accelerate", "peft"}),
        ({"trainer": "accelerate", "options": "deepspeed.zero_stage:3"}, {"transformers", "accelerate", "deepspeed"}),
        (
            {"trainer": "hf", "quantization": "BitsAndBytesConfig+load_in_4bit:true"},
            {"transformers", "accelerate", "bitsandbytes"},
        ),
    ],
)
def test_a_run_needs_what_it_is_told_to_use(parameters: dict[str, Any], packages: set[str]) -> None:
    assert set(find_probe("configured_run").needs(parameters)) == packages


class Tensor:
    """What a weights file gives: it says whether it is a copy."""

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def __getitem__(self, key: Any) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(f"copy of {self.origin}")


class File:
    """A weights file of one tensor."""

    def __init__(self, path: str, framework: str) -> None:
        self.path, self.framework = path, framework

    def __enter__(self) -> None:
        """Open it."""

    def __exit__(self, *_: object) -> None:
        self.path = ""

    def keys(self) -> list[str]:
        return ["weight"]

    def get_tensor(self, name: str) -> Tensor:
        return Tensor(f"{self.path}:{name}")

    get_slice = get_tensor


def test_what_is_read_of_a_weights_file_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    library, inner = ModuleType("safetensors"), ModuleType("safetensors.torch")
    library.safe_open = File  # type: ignore[attr-defined]
    library.torch = inner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "safetensors", library)
    monkeypatch.setitem(sys.modules, "safetensors.torch", inner)
    configured_run._copy_what_is_read()
    assert inner.safe_open is library.safe_open  # type: ignore[attr-defined]
    with library.safe_open("a", framework="pt") as file:  # type: ignore[attr-defined]
        assert file.keys() == ["weight"]
        assert file.get_tensor("weight").origin == "copy of a:weight"
        assert file.get_slice("weight")[...].origin == "copy of a:weight"
        assert file.get_slice("weight").origin == "a:weight"
    assert file.path == ""


class Parameter:
    """A parameter that is trained or not."""

    def __init__(self, *, requires_grad: bool) -> None:
        self.requires_grad = requires_grad


@pytest.mark.parametrize(("optimized", "count"), [("trained", 1), ("all", 2)])
def test_a_loop_s_optimizer_is_made_of_what_is_trained_or_of_all(optimized: str, count: int) -> None:
    model = ModuleType("model")
    model.parameters = lambda: [Parameter(requires_grad=one) for one in (True, False)]  # type: ignore[attr-defined]
    assert len(configured_run._optimized({"optimized": optimized}, model)) == count


def test_a_probe_shares_files_that_are_no_probes_and_other_probes() -> None:
    folder = os.path.dirname(find_probe("configured_run").path)
    assert find_shared(folder, "tiny_models") == "_tiny_models.py"
    assert find_shared(folder, "whole_run") == "whole_run.py"
    assert (
        find_probe("configured_run").choices.keys().isdisjoint({"batch", "adapter"})
    )  # those of whole_run are its own
