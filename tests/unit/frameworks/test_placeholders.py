"""Values that something fills in before the program reads them."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.registry import find_configuration_reader

BASE = {"model_name_or_path": "m", "output_dir": "x", "per_device_train_batch_size": 1, "learning_rate": 1e-5}


@pytest.mark.parametrize(
    "value",
    [
        "${GC}",
        "$GC",
        "${GC:-true}",
        "${oc.env:GC}",
        "{{ gc }}",
        "$(hidden)",
        "x${GC}",
        "${a.b}",
        "${A}${B}",
        "${eval:${A}}",
    ],
)
def test_a_value_filled_in_later_is_unresolved(value: str) -> None:
    reader = find_configuration_reader("hf_trainer")
    assert reader is not None
    (document,) = read_filled_in(reader, {**BASE, "gradient_checkpointing": value}, "c.yaml").documents
    assert "gradient_checkpointing" not in {one.key for one in document.statements}
    assert ("training.gradient_checkpointing", "gradient_checkpointing") in {one[:2] for one in document.unresolved}


def test_a_key_without_a_meaning_of_its_own_is_a_gap() -> None:
    reader = find_configuration_reader("hf_trainer")
    assert reader is not None
    (document,) = read_filled_in(reader, {**BASE, "fsdp": "${F}"}, "c.yaml").documents
    assert not {one.fact for one in document.statements} & {"training.sharding"}
    assert [gap.key for gap in document.gaps] == ["fsdp"]


def test_what_has_no_bearing_and_what_the_file_itself_holds_are_left_alone() -> None:
    reader = find_configuration_reader("hf_trainer")
    assert reader is not None
    data = {**BASE, "run_name": "${NAME}", "logging_dir": "${output_dir}"}
    (document,) = read_filled_in(reader, data, "c.yaml").documents
    assert not document.gaps
    assert not document.unresolved


def test_a_section_whose_only_key_is_filled_in_is_not_left_out() -> None:
    reader = find_configuration_reader("deepspeed")
    assert reader is not None
    data = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": "${STAGE}"}}
    (document,) = read_filled_in(reader, data, "ds.json").documents
    assert "training.zero_stage" not in {one.fact for one in document.statements}
    assert "training.zero_stage" in {one.fact for one in document.unresolved}


@pytest.mark.parametrize("value", ["${DEVICE}", "${a.b}"])
def test_a_section_that_says_something_when_it_is_empty_is_no_empty_one(value: str) -> None:
    reader = find_configuration_reader("deepspeed")
    assert reader is not None
    data = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "offload_param": {"device": value}}}
    (document,) = read_filled_in(reader, data, "ds.json").documents
    assert "training.offload_param" not in {one.fact for one in document.statements}


def test_a_list_with_a_value_filled_in_later_is_unresolved() -> None:
    reader = find_configuration_reader("axolotl")
    assert reader is not None
    data = {"base_model": "m", "micro_batch_size": 1, "datasets": [{"path": "d"}], "lora_target_modules": ["${LAYERS}"]}
    (document,) = read_filled_in(reader, data, "c.yaml").documents
    assert "training.lora_target_modules" in {one.fact for one in document.unresolved}


@pytest.mark.parametrize(
    ("name", "data", "fact"),
    [
        (
            "llamafactory",
            {"model_name_or_path": "m", "stage": "sft", "do_train": True, "quantization_bit": "${BITS}"},
            "model.quantization",
        ),
        (
            "axolotl",
            {"base_model": "m", "micro_batch_size": 1, "datasets": [{"path": "d"}], "bf16": "${BF16}"},
            "model.load_dtype",
        ),
        (
            "nanotron",
            {"general": {}, "model": {"model_config": {}}, "parallelism": {"dp": 2, "tp": "${TP}"}, "tokens": {}},
            "hardware.world_size",
        ),
        (
            "roll",
            {
                "pretrain": "m",
                "rollout_batch_size": 8,
                "num_return_sequences_in_group": "${ANSWERS}",
                "actor_train": {"strategy_args": {"strategy_name": "megatron_train"}},
                "actor_infer": {"strategy_args": {"strategy_name": "vllm"}},
            },
            "rollout.global_batch_size",
        ),
    ],
)
def test_what_follows_from_several_keys_is_open_where_one_of_them_is_not_known(
    name: str, data: object, fact: str
) -> None:
    reader = find_configuration_reader(name)
    assert reader is not None
    documents = read_filled_in(reader, data, "c.yaml").documents  # type: ignore[arg-type]  # mappings
    assert fact not in {one.fact for document in documents for one in document.statements}
    assert fact in {one.fact for document in documents for one in document.unresolved}


DOTTED = {**BASE, "gradient_checkpointing_kwargs.use_reentrant": True}
LITGPT = {"checkpoint_dir": "c", "train": {"global_batch_size": 8}, "train.micro_batch_size": 2}


@pytest.mark.parametrize(
    ("reader", "data", "fact", "value"),
    [
        ("hf_trainer", DOTTED, "training.use_reentrant", None),
        (
            "hf_trainer",
            {**BASE, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
            "training.use_reentrant",
            True,
        ),
        ("litgpt", LITGPT, "training.micro_batch_size", 2),
    ],
)
def test_a_name_with_a_dot_is_a_section_where_its_parser_makes_it_one(
    reader: str, data: dict[str, object], fact: str, value: object
) -> None:
    """HfArgumentParser knows no such argument; jsonargparse, which LitGPT has, reads it as the entry of a section."""
    found = find_configuration_reader(reader)
    assert found is not None
    (document,) = read_filled_in(found, data, "c.yaml").documents
    assert {one.fact: one.value for one in document.statements}.get(fact) == value
    if value is None:
        assert [key for key, _ in document.unread] == ['"gradient_checkpointing_kwargs.use_reentrant"']
