"""Files of programs that are known and not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.recognise import read_configuration
from compatcheck.frameworks.text import parse_configuration, read_text
from compatcheck.frameworks.unread import recognise
from tests import ROOT

CONFIGS = ROOT / "fixtures/configs"


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("llamafactory-v1.yaml", "LLaMA-Factory v1"),
        ("no-trainer.yaml", "a script on accelerate without the HF Trainer"),
    ],
)
def test_program_is_named_and_its_file_not_read(name: str, framework: str) -> None:
    file = str(CONFIGS / "other" / name)
    assert recognise(parse_configuration(read_text(file), file)) == framework
    with pytest.raises(InputError, match=f"configuration of {framework}"):
        read_configuration(file, named=False)


NOT_TRAINING = {"infer.yaml", "merge.yaml"}


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("[adhlmt]*/*.[jy]*")), ids=lambda path: path.name)
def test_files_that_are_read_belong_to_no_other_program(file: Path) -> None:
    assert recognise(parse_configuration(read_text(str(file)), str(file))) is None
    assert (read_configuration(str(file), named=False) is None) == (file.name in NOT_TRAINING)


def test_a_workflow_is_passed_over() -> None:
    assert read_configuration(str(CONFIGS / "other/workflow.yml"), named=False) is None


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("trainer: {}\nexp_manager: {}\nmodel: {name: m}", "NeMo"),
        ("model: {name: m}\nmax_duration: 1ba\nglobal_train_batch_size: 8\ntrain_loader: {}", "LLM Foundry"),
    ],
)
def test_programs_that_share_key_names_with_trainers_are_named(tmp_path: Path, text: str, framework: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"configuration of {framework}, which this release does not read"):
        read_configuration(str(file), named=True)
