"""What runs are told, and the files that a probe shares."""

from __future__ import annotations

import os
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


def test_a_probe_shares_files_that_are_no_probes_and_other_probes() -> None:
    folder = os.path.dirname(find_probe("configured_run").path)
    assert find_shared(folder, "tiny_models") == "_tiny_models.py"
    assert find_shared(folder, "whole_run") == "whole_run.py"
    assert (
        find_probe("configured_run").choices.keys().isdisjoint({"batch", "adapter"})
    )  # those of whole_run are its own
