"""nanotron's configurations: dimensions of the model, degrees of parallelism, and what several keys decide together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.frameworks.nanotron import configuration as nanotron
from tests.unit.frameworks.launch_script.written_commands import facts

if TYPE_CHECKING:
    from compatcheck.core.document import Document

MODEL = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "vocab_size": 32768,
}


def configure(model: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "general": {"run": "r"},
        "model": {"dtype": "bfloat16", "model_config": MODEL | (model or {})},
        "optimizer": {"zero_stage": 1, "accumulate_grad_in_fp32": True},
        "parallelism": {"dp": 4, "tp": 2, "pp": 2},
        "tokens": {"sequence_length": 2048, "micro_batch_size": 4, "batch_accumulation_per_replica": 2},
    } | sections


def read(model: dict[str, Any] | None = None, **sections: Any) -> Document:
    data = configure(model, **sections)
    assert nanotron.recognise(data)
    (document,) = nanotron.read(data, "c.yaml").documents
    return document


def test_what_a_file_says() -> None:
    document = read()
    found = facts(document)
    assert not document.unread
    assert (
        found
        | {
            "model.hidden_size": 2048,
            "model.num_key_value_heads": 32,
            "model.gated_mlp": True,
            "hardware.world_size": 16,
            "training.trainer": "pretrain",
            "training.sharding": "megatron",
            "training.distributed_optimizer": True,
            "training.tensor_parallel": 2,
            "training.pipeline_parallel": 2,
            "training.micro_batch_size": 4,
            "training.sequence_length": 2048,
            "training.gradient_accumulation_steps": 2,
            "training.param_dtype": "bfloat16",
            "training.grad_accum_dtype": "float32",
            "training.master_dtype": "float32",
        }
        == found
    )


def test_a_file_without_any_of_its_sections_is_none_of_nanotrons() -> None:
    assert not nanotron.recognise({name: one for name, one in configure().items() if name != "tokens"})
    assert not nanotron.recognise(configure() | {"model": {"name": "llama3"}})


@pytest.mark.parametrize(
    ("parallelism", "ranks"),
    [
        ({"dp": 2, "tp": 4, "pp": 1, "context_parallel_size": 2}, 16),
        ({"dp": 2, "tp": 1, "pp": 1, "expert_parallel_size": 2}, 2),  # experts lie in ranks of data parallelism
        ({"tp": 4, "pp": 1}, None),
        ({"dp": "$DP", "tp": 4, "pp": 1}, None),
    ],
)
def test_ranks_are_the_product_of_the_degrees(parallelism: dict[str, Any], ranks: int | None) -> None:
    assert facts(read(parallelism=parallelism)).get("hardware.world_size") == ranks


@pytest.mark.parametrize(
    ("optimizer", "gradients", "masters"),
    [
        ({"accumulate_grad_in_fp32": True}, "float32", "float32"),
        ({"accumulate_grad_in_fp32": False}, "bfloat16", None),
    ],
)
def test_gradients_of_32_bits_come_with_copies_of_the_weights(
    optimizer: dict[str, Any], gradients: str, masters: str | None
) -> None:
    found = facts(read(optimizer=optimizer))
    assert (found["training.grad_accum_dtype"], found["training.master_dtype"]) == (gradients, masters)


def test_the_longest_sequences_of_all_stages_count() -> None:
    stages = [{"name": "long", "sequence_length": 8192}, {"name": "same"}]
    assert facts(read(data_stages=stages))["training.sequence_length"] == 8192


@pytest.mark.parametrize(
    ("model", "heads"),
    [
        ({"is_starcoder2_config": True}, 1),
        ({"is_starcoder2_config": True, "grouped_query": True, "num_kv_heads": 4}, 4),
        ({"num_key_value_heads": 8}, 8),
        ({"num_key_value_heads": None}, 32),
    ],
)
def test_heads_of_keys_where_nobody_says_how_many(model: dict[str, Any], heads: int) -> None:
    assert facts(read(model))["model.num_key_value_heads"] == heads


@pytest.mark.parametrize(
    ("granularity", "whole", "what"),
    [("full", True, "full"), ("SELECTIVE", True, "core_attention"), (None, None, None)],
)
def test_what_is_computed_again(granularity: str | None, whole: bool | None, what: str | None) -> None:  # noqa: FBT001
    found = facts(read(parallelism={"dp": 1, "tp": 1, "pp": 1, "recompute_granularity": granularity}))
    assert (found.get("training.gradient_checkpointing"), found.get("training.checkpointing_policy")) == (whole, what)


@pytest.mark.parametrize(
    ("engine", "steps", "kept"), [("afab", 8, True), (None, 8, True), ("afab", 1, False), ("1f1b", 8, False)]
)
def test_a_schedule_that_keeps_what_all_micro_batches_keep(engine: str | None, steps: int, *, kept: bool) -> None:
    parallelism = {"dp": 1, "tp": 1, "pp": 2, "pp_engine": engine}
    document = read(parallelism=parallelism, tokens={"batch_accumulation_per_replica": steps})
    assert any(one.key.startswith("(all forward") for one in document.statements) is kept


def test_losses_of_doremi_and_its_reference_model_are_said() -> None:
    document = read(doremi={"domain_names": "a, b", "ref_model_resume_checkpoint_path": "reference", "step_size": 1.0})
    keys = ["doremi.domain_names", "doremi.ref_model_resume_checkpoint_path"]
    assert [(gap.source.key, gap.assumed) for gap in document.gaps] == [(key, True) for key in keys]
    assert not document.unread


def test_blocks_of_mamba_are_not_read_as_attention() -> None:
    document = read({"is_mamba_config": True, "d_model": 1024})
    assert any("of Mamba" in one.reason for one in document.skipped)


def test_experts() -> None:
    experts = {"num_experts": 8, "top_k": 2, "moe_intermediate_size": 512}
    found = facts(read({"moe_config": experts}))
    assert (found["model.num_experts"], found["model.num_experts_per_token"]) == (8, 2)
    assert facts(read())["model.expert_parameters"] == 0
    some = read({"moe_config": experts | {"layers": [1, 3]}})
    assert any(one.key == "(layers without experts)" for one in some.statements)


def test_what_yaml_reads_as_text_is_no_number_and_is_said() -> None:
    document = read(
        parallelism={"dp": "1e1", "tp": 2, "pp": 1},
        tokens={"sequence_length": "1e3", "micro_batch_size": 4},
        optimizer={"zero_stage": "0.1"},
    )
    found = facts(document)
    assert not {"hardware.world_size", "training.sequence_length", "training.distributed_optimizer"} & found.keys()
    assert {(one.fact, one.key) for one in document.unresolved} == {
        ("hardware.world_size", "parallelism.dp"),
        ("training.sequence_length", "tokens.sequence_length"),
    }
    assert [one.source.key for one in document.skipped] == ["optimizer.zero_stage"]
