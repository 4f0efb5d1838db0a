"""The native facts file, and what `compatcheck facts --format yaml` writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compatcheck.cli.__main__ import main
from compatcheck.configs import native

CONFIGS = Path(__file__).resolve().parents[3] / "fixtures/configs"
CASES = [
    "deepspeed/zero2-commented.hjson",
    "accelerate/fsdp1.yaml",
    "accelerate/deepspeed.yaml",
    "hf_trainer/arguments.json",
    "trl/grpo.yaml",
    "trl/preference.yaml",
    "model/quantised.json",
]


def print_facts(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["compatcheck", "facts", "--format", "yaml", str(path)])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().out


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
    document, _ = native.read(str(file))
    assert document.unread == ()
    assert document.skipped == ()
    assert print_facts(file, monkeypatch, capsys).splitlines()[1:] == first.splitlines()[1:]


def test_a_version_that_cannot_be_compared_is_said() -> None:
    _, environment = native.read_data({"packages": {"deepspeed": "not-a-version", "torch": "2.8.0"}}, "facts.yaml")
    assert environment is not None
    (skipped,) = environment.skipped
    assert skipped.named
    assert skipped.source.key == "packages.deepspeed"
