"""What a script leaves to a variable or to a file that is not there is asked for and never assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import run

SFT = (
    "sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size {batch} --max_length 2048 --bf16 True "
    "--gradient_checkpointing True{more}"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def write(launcher: str, batch: object = 1, more: str = "") -> None:
    Path("train.sh").write_text(f"{launcher} {SFT.format(batch=batch, more=more)}\n")


def facts(*options: str) -> tuple[dict[str, Any], dict[str, str]]:
    (subject,) = json.loads(run("facts", "train.sh", "--format", "json", *options).out)["subjects"]
    known = {fact["name"]: fact["value"] for fact in subject["facts"]}
    return known, {entry["fact"]: entry["reason"] for entry in subject["unresolved"]}


def test_nodes_of_the_script_stay_when_the_device_is_named() -> None:
    write("torchrun --nproc_per_node 8 --nnodes 4")
    known, _ = facts("--gpu", "8xH100-80GB")
    assert (known["hardware.nodes"], known["hardware.world_size"]) == (4, 32)
    known, _ = facts("--gpu", "8xH100-80GB", "--nodes", "2")
    assert (known["hardware.nodes"], known["hardware.world_size"]) == (2, 16)


def test_nodes_left_to_a_variable_are_not_one() -> None:
    write("torchrun --nproc_per_node 8 --nnodes $NNODES")
    known, unresolved = facts("--gpu", "8xH100-80GB")
    assert "hardware.world_size" not in known
    assert "hardware.nodes" in unresolved


def test_more_processes_than_the_declared_devices_are_a_contradiction() -> None:
    write("accelerate launch --num_processes 32")
    known, _ = facts("--gpu", "8xH100-80GB")
    assert known["hardware.world_size"] == 32
    assert known["configuration.conflicts"] == ["hardware.world_size"]
    write("accelerate launch --num_processes 4")
    known, _ = facts("--gpu", "8xH100-80GB")
    assert (known["hardware.world_size"], known["configuration.conflicts"]) == (8, [])


@pytest.mark.parametrize(
    ("launcher", "more", "opened"),
    [
        ("accelerate launch --config_file nothere.yaml", "", {"hardware.world_size", "training.sharding"}),
        ("accelerate launch", "", {"hardware.world_size"}),
        ("torchrun --nproc_per_node 8", " --deepspeed nothere.json", {"training.zero_stage", "training.sharding"}),
    ],
)
def test_what_a_missing_file_decides_is_open(launcher: str, more: str, opened: set[str]) -> None:
    write(launcher, more=more)
    known, unresolved = facts()
    assert opened <= unresolved.keys()
    assert not opened & known.keys()


def test_a_file_given_beside_the_script_settles_what_the_missing_one_left_open() -> None:
    write("torchrun --nproc_per_node 8", more=" --deepspeed nothere.json")
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    report = json.loads(run("facts", "train.sh", "ds.json", "--format", "json").out)["subjects"][0]
    assert {fact["name"]: fact["value"] for fact in report["facts"]}["training.zero_stage"] == 3


def test_a_rank_of_lora_beside_a_key_nobody_understood_leaves_adapters_open() -> None:
    write("torchrun --nproc_per_node 8", more=" --lora_r 8 --lora_switch_of_mine True")
    known, unresolved = facts()
    assert "training.peft" not in known
    assert "lora_switch_of_mine" in unresolved["training.peft"]
    write("torchrun --nproc_per_node 8", more=" --lora_r 8 --use_peft_lora True --use_4bit_quantization True")
    known, _ = facts()
    assert (known["training.peft"], known["model.quantization"]) == ("lora", "nf4")
