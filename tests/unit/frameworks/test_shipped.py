"""Configuration files that programs ship are assumed where a run names one that is not here, and never where one is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compatcheck import check
from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.registry import FOLDERS, find_configuration_reader
from compatcheck.frameworks.shipped import find_shipped, shipped_files

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = {key: one.content for key, one in shipped_files().items()}
COMMANDS = {
    "examples/deepspeed/ds_z3_config.json": "llamafactory-cli train --stage sft --do_train --finetuning_type full "
    "--model_name_or_path meta-llama/Meta-Llama-3-8B-Instruct --cutoff_len 1024 --bf16 --deepspeed {}",
    "examples/accelerate_configs/deepspeed_zero2.yaml": "accelerate launch --config_file {} trl/scripts/sft.py "
    "--model_name_or_path Qwen/Qwen2.5-7B --max_length 1024 --bf16 true",
    "zero1": "trl sft --accelerate_config {} --model_name_or_path Qwen/Qwen2.5-7B --max_length 1024 --bf16 true",
}


def _write(folder: Path, name: str) -> Path:
    path = folder / "run.sh"
    path.write_text(COMMANDS[name].format(name) + " --per_device_train_batch_size 1\n", encoding="utf-8")
    return path


def test_every_file_is_read_whole_by_the_reader_of_its_kind() -> None:
    assert {folder.name for folder in FOLDERS if folder.ships} == {"axolotl", "llamafactory", "trl", "xtuner"}
    for (kind, name), content in SHIPPED.items():
        documents = read_filled_in(find_configuration_reader(kind), content, name).documents
        stated = {entry.fact for one in documents for entry in one.statements} | {
            entry.fact for one in documents for entry in one.unresolved
        }
        assert stated & {"training.zero_stage", "training.sharding", "hardware.world_size"}, name
        assert not [entry for one in documents for entry in one.skipped if entry.fact is not None], name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_is_estimated_with_what_the_program_ships(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path, name)
    assumed = check(training=[path], gpu="8xA100-80GB").value
    (subject,) = assumed.subjects
    assert subject.estimate is not None
    assert subject.estimate.phases
    assert not [why for _, _, why in subject.unresolved if "{{" in why or "filled in" in why]
    said = [entry.reason for entry in assumed.skipped if "ships there is assumed" in entry.reason]
    assert len(said) == ("/" in name)  # what only the program itself resolves cannot be another file

    kind, content = next((kind, content) for (kind, known), content in SHIPPED.items() if name.endswith(known))
    own = tmp_path / name
    own.parent.mkdir(parents=True, exist_ok=True)
    filled = json.loads(json.dumps(content).replace('"{{ changed between releases }}"', "false"))
    own.write_text(json.dumps(filled), encoding="utf-8")
    given = check(training=[path], gpu="8xA100-80GB").value
    assert not [entry for entry in given.skipped if "assumed" in entry.reason], kind
    assert given.subjects[0].estimate.needed.expected == pytest.approx(subject.estimate.needed.expected, rel=0.01)


def test_a_file_of_ones_own_wins_and_another_name_is_missing_as_before(tmp_path: Path) -> None:
    name = "examples/deepspeed/ds_z3_config.json"
    path = _write(tmp_path, name)
    own = tmp_path / name
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"zero_optimization": {"stage": 1}}), encoding="utf-8")
    assert not [entry for entry in check(training=[path]).value.skipped if "assumed" in entry.reason]
    assert find_shipped("deepspeed", "deepspeed/my_config.json") is None
    assert find_shipped("deepspeed", "ds_z3_config.json") is None  # without its folder it may be anybody's
    assert find_shipped("accelerate", name) is None
