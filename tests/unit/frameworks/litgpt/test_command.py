"""LitGPT's command lines, alone and over their files, as its own parser (0.5.13, jsonargparse 4.41.0) reads them."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.composition import compose
from compatcheck.frameworks.litgpt import configuration as litgpt
from tests.unit.frameworks.launch_script.written_commands import documents, facts, runs

FILE = {
    "checkpoint_dir": "checkpoints/a/b",
    "lora_r": 4,
    "lora_key": True,
    "train": {"epochs": 1, "max_seq_length": 256},
}


def read_over(words: str, file: dict[str, object] = FILE) -> dict[str, object]:
    """Return what a command and its file state together, with models and keys that are not read."""
    (written,) = litgpt.read(file, "c.yaml").documents
    (command,) = documents(f"litgpt {words}")
    command, written = compose((command, written))
    assert not command.unread
    assert not written.skipped
    both = {**facts(written), **facts(command)}
    return both | {"model": [name for one in (command, written) for kind, name, _ in one.references if kind == "model"]}


@pytest.mark.parametrize(
    ("words", "rank", "model"),
    [
        ("finetune_lora --config c.yaml", 4, "checkpoints/a/b"),
        ("finetune_lora --lora_r 9 --config c.yaml", 4, "checkpoints/a/b"),
        ("finetune_lora --config c.yaml --lora_r 9", 9, "checkpoints/a/b"),
        ("finetune_lora x/y --config c.yaml", 4, "checkpoints/a/b"),
        ("finetune_lora --config c.yaml x/y", 4, "x/y"),
        ("finetune x/y --lora_alpha 3 --config=c.yaml", 4, "checkpoints/a/b"),
    ],
)
def test_what_stands_behind_the_file_wins_and_what_stands_before_it_loses(words: str, rank: int, model: str) -> None:
    read = read_over(words)
    assert (read["training.lora_rank"], read["model"]) == (rank, [model])


def test_what_stands_before_the_file_counts_where_that_says_nothing() -> None:
    read = read_over("finetune_lora --lora_dropout .1 --train.micro_batch_size 3 --config c.yaml")
    assert (read["training.lora_dropout"], read["training.micro_batch_size"]) == (0.1, 3)


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        ("", ("q_proj", "k_proj", "v_proj")),
        ("--lora_key no --lora_projection yes", ("q_proj", "v_proj", "o_proj")),
        ("--lora_query false --lora_value=false --lora_head true", ("k_proj", "lm_head")),
    ],
)
def test_adapters_lie_where_both_switch_them_on(words: str, targets: tuple[str, ...]) -> None:
    assert read_over(f"finetune_lora --config c.yaml {words}")["training.lora_target_modules"] == targets


def test_an_optimizer_of_the_command_replaces_the_section_of_the_file() -> None:
    file = {**FILE, "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"fused": True}}}
    read = read_over("finetune_lora --config c.yaml --optimizer SGD", file)
    assert read["training.optimizer"] == "sgd"
    assert "training.optimizer_implementation" not in read


def test_the_command_decides_what_a_file_without_adapters_is_for() -> None:
    file = {"checkpoint_dir": "m", "train": {"epochs": 1}}
    assert read_over("finetune_lora --config c.yaml", file)["training.peft"] == "lora"
    assert read_over("finetune_full --config c.yaml", file)["training.peft"] is None


def test_devices_left_out_are_one_but_all_of_the_machine_in_pretraining() -> None:
    (tuned,) = documents("litgpt finetune_full x/y --num_nodes 2")
    assert (facts(tuned)["hardware.gpus_per_node"], facts(tuned)["hardware.nodes"]) == (1, 2)
    (pretrained,) = documents("litgpt pretrain pythia-14m")
    assert "hardware.gpus_per_node" not in facts(pretrained)
    assert ("model", "pythia-14m", "model_name") in pretrained.references


def test_two_files_over_one_another_leave_open_what_they_may_say() -> None:
    (command,) = documents("litgpt finetune_lora --config a.yaml --config b.yaml --lora_r 2")
    assert command.gaps
    assert not command.references


def test_null_is_none_and_adapters_of_its_own_are_not_known() -> None:
    (command,) = documents("litgpt finetune_lora x/y --quantize null --train.max_seq_length null")
    assert not command.skipped
    assert "training.sequence_length" not in facts(command)
    (command,) = documents("litgpt finetune_adapter_v2 x/y")
    assert [one.fact for one in command.unresolved] == ["training.peft"]


def test_other_commands_train_nothing() -> None:
    assert not runs("litgpt generate x/y --devices 2")
