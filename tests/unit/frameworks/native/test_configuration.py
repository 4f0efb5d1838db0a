"""The native facts file, and what `compatcheck facts --format yaml` writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compatcheck.cli.__main__ import main
from compatcheck.frameworks.native import configuration as native
from compatcheck.frameworks.recognise import read_configuration
from tests import ROOT
from tests.unit.frameworks.reading import read_file

CONFIGS = ROOT / "fixtures/configs"
CASES = [
    "deepspeed/zero2-commented.hjson",
    "accelerate/fsdp1.yaml",
    "accelerate/deepspeed.yaml",
    "hf_trainer/arguments.json",
    "trl/grpo.yaml",
    "trl/preference.yaml",
    "model/quantised.json",
    "llama_factory/full_zero3.yaml",
    "llama_factory/qlora_dpo.yaml",
    "ms_swift/grpo.json",
    "ms_swift/megatron.yaml",
]


def print_facts(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["compatcheck", "facts", "--format", "yaml", str(path)])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().out


DECIDED_AGAIN = {"ms_swift/megatron.yaml": ("  expert_tensor_parallel: 2",)}
"""A gap: what the releases of ms-swift leave open, Megatron-LM's default decides where only the facts are left of the file."""


@pytest.mark.parametrize("name", CASES)
def test_printed_facts_read_back_to_the_same_facts(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = print_facts(CONFIGS / name, monkeypatch, capsys)
    file = tmp_path / "facts.yaml"
    file.write_text(first, encoding="utf-8")
    (document,) = read_file(native, str(file)).documents
    assert document.unread == ()
    assert document.skipped == ()
    again = [
        line for line in print_facts(file, monkeypatch, capsys).splitlines() if line not in DECIDED_AGAIN.get(name, ())
    ]
    assert again[1:] == first.splitlines()[1:]


def test_a_version_that_cannot_be_compared_is_said() -> None:
    _, environment = native.read_sections({"packages": {"deepspeed": "not-a-version", "torch": "2.8.0"}}, "facts.yaml")
    assert environment is not None
    (skipped,) = environment.skipped
    assert skipped.named
    assert skipped.source.key == "packages.deepspeed"


@pytest.mark.parametrize("name", ["llamafactory", "llama-factory", "LLaMA-Factory", "llama_factory"])
def test_a_framework_may_be_spelt_as_its_program_is(name: str) -> None:
    document, _ = native.read_sections({"training": {"framework": name}}, "facts.yaml")
    assert [statement.value for statement in document.statements] == ["llamafactory"]


@pytest.mark.parametrize(
    ("framework", "key", "fact"),
    [
        ("llama-factory", "training.use_reentrant_gc", "training.use_reentrant"),
        ("llama-factory", "training.cutoff_len", "training.sequence_length"),
        ("llama-factory", "use_reentrant_gc", "training.use_reentrant"),
        ("ms-swift", "training.tuner_type", "training.peft"),
        ("hf_trainer", "training.per_device_train_batch_size", "training.micro_batch_size"),
    ],
)
def test_a_key_of_the_named_program_is_answered_with_the_fact(
    framework: str, key: str, fact: str, tmp_path: Path
) -> None:
    section, _, name = key.rpartition(".")
    line = f"  {name}: false" if section else f"{name}: false"
    text = f"compatcheck: 1\ntraining:\n  framework: {framework}\n{line}\n"
    (tmp_path / "facts.yaml").write_text(text, encoding="utf-8")
    reading = read_configuration(str(tmp_path / "facts.yaml"), named=True)
    assert reading is not None
    (document,) = reading.documents
    (skipped,) = document.skipped
    assert document.unread == ()
    assert skipped.source.key == key
    assert skipped.reason.endswith(f"a facts file states {fact}")
    assert skipped.hint == f"write {fact}"


def test_a_job_of_ci_may_have_the_name() -> None:
    assert not native.recognise(
        {"stages": ["test"], "compatcheck": {"image": "python:3.12-slim", "script": ["compatcheck check"]}}
    )
    assert native.recognise({"compatcheck": 2})  # of another version, which is said
