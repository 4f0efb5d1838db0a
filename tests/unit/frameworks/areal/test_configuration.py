"""AReaL's configurations; values are those of its own parser (ModelAllocation.from_str, OmegaConf over PPOConfig, 1.0.4)."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.frameworks.areal import configuration as areal
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.effort import at_most

RL: dict[str, Any] = {
    "trial_name": "t",
    "enable_offload": False,
    "saver": {"freq_epochs": 1},
    "recover": {"mode": "disabled"},
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "gconfig": {"n_samples": 4, "max_new_tokens": 1024},
    "rollout": {"backend": "sglang:d4p1t1", "scheduling_spec": "${actor.scheduling_spec}"},
    "actor": {
        "backend": "fsdp:d4p1t1",
        "path": "Qwen/Qwen2.5-1.5B-Instruct",
        "dtype": "bfloat16",
        "gradient_checkpointing": True,
        "mb_spec": {"max_tokens_per_mb": 10240},
        "optimizer": {"type": "adam", "lr": 1e-5},
        "kl_ctl": 0.0,
        "ppo_n_minibatches": 1,
        "scheduling_spec": [{"gpu": 1}],
    },
    "ref": {"backend": "${actor.backend}", "path": "${actor.path}", "dtype": "${actor.dtype}", "optimizer": None},
    "sglang": {"mem_fraction_static": 0.8, "context_length": 32768},
    "vllm": {"gpu_memory_utilization": 0.9},
    "train_dataset": {"path": "openai/gsm8k", "type": "rl", "batch_size": 256, "max_length": 1024},
}


def merge(data: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Lay sections over one another."""
    found = dict(data)
    for key, value in more.items():
        inner = found.get(key)
        found[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return found


def resolved(**more: Any) -> dict[str, dict[str, Any]]:
    """Resolve a configuration; return each model's facts."""
    documents = areal.read(merge(RL, more), "c.yaml").documents
    roles = resolve("x", rules=open_rules(), documents=documents).roles
    return {role: {name: fact.value for name, fact in facts.items()} for role, facts in roles.items()}


@pytest.mark.parametrize(
    ("text", "engine", "sizes", "ranks"),
    [
        ("fsdp:d4p1t1", "fsdp", {"d": 4, "p": 1, "t": 1}, 4),
        ("archon:d2", "archon", {"d": 2}, 2),
        ("megatron: d2p2t4c2e4", "megatron", {"d": 2, "p": 2, "t": 4, "c": 2, "e": 4}, 32),
        ("megatron:(attn:d4p4t2|ffn:d2p4e4)", "megatron", {"d": 4, "p": 4, "t": 2, "e": 4, "x": 1}, 32),
        ("megatron:attn:d1p12t4|ffn:d1p12e4", "megatron", {"p": 12, "t": 4, "e": 4}, 48),
        ("sglang[rollout]:d8t4", "sglang", {"d": 8, "t": 4}, 32),
    ],
)
def test_a_backend_is_parsed(text: str, engine: str, sizes: dict[str, int], ranks: int) -> None:
    found = areal.parse_backend(text)
    assert found is not None
    assert (found.engine, found.ranks) == (engine, ranks)
    assert sizes.items() <= dict(found.sizes).items()


@pytest.mark.parametrize("text", [None, "d4", "fsdp", "fsdp:d4+sglang:d4", "deepspeed:d8", "fsdp:d", 4])
def test_what_is_no_backend(text: object) -> None:
    assert areal.parse_backend(text) is None


def test_a_file_is_told_by_its_sections() -> None:
    assert areal.recognise(RL)
    assert areal.recognise({"actor": {"backend": "fsdp:d4", "path": "m"}})
    assert not areal.recognise({"env_vars": {}, "saver": {}})
    assert not areal.recognise({"actor": {"backend": "gloo"}})


@pytest.mark.parametrize(
    ("backend", "wanted"),
    [
        ("fsdp:d4", (True, False, "no", True)),
        ("archon:d4", (False, False, "no", True)),
        ("archon:d8e4", (False, True, "no", True)),
        ("megatron:d4", (False, None, "bf16", None)),
    ],
)
def test_what_an_engine_runs(backend: str, wanted: tuple[object, ...]) -> None:
    found = resolved(actor={"backend": backend})["actor"]
    names = ("program.runs_transformers", "program.fsdp_mixes_meshes", "training.mixed_precision", "run.outputs_kept")
    assert tuple(found.get(name) for name in names) == wanted


def test_a_policy_on_devices_of_its_own() -> None:
    found = resolved()
    assert set(found) - {"rollout"} == {"actor"}  # no KL term
    wanted = {
        "training.sharding": "fsdp", "training.fsdp_version": 2, "hardware.world_size": 4, "training.param_dtype": "bfloat16",
        "training.compute_dtype": "bfloat16", "training.reduce_dtype": "float32", "training.micro_batch_tokens": 10240,
        "training.sequence_length": 10240, "training.global_batch_size": 1024, "rollout.global_batch_size": 1024,
        "training.optimizer": "adamw", "training.optimizer_implementation": "fused", "training.trainer": "grpo",
        "rollout.engine": "sglang", "rollout.gpu_memory_utilization": 0.8, "rollout.colocated": False,
        "rollout.sleep_mode": False,
        "training.peft": None, "training.framework": "areal", "model.attn_implementation": "flash_attention_2",
    }  # fmt: skip
    assert {name: found["actor"].get(name) for name in wanted} == wanted


def test_models_beside_the_policy() -> None:
    beside = {"scheduling_strategy": {"type": "colocation", "target": "actor"}}
    critic = {"backend": "${actor.backend}", "path": "m", "optimizer": "${actor.optimizer}", **beside}
    found = resolved(actor={"kl_ctl": 0.1}, ref=beside, critic=critic)
    assert set(found) - {"rollout"} == {"actor", "reference", "critic"}
    assert found["actor"]["training.trainer"] == "ppo"
    assert found["reference"]["training.colocated_with"] == "actor"
    assert (found["critic"]["training.optimizer"], found["critic"]["training.gradient_checkpointing"]) == (
        "adamw",
        False,
    )
    assert found["reference"]["training.param_dtype"] == "bfloat16"


def test_preference_training_counts_pairs() -> None:
    found = resolved(
        train_dataset={"type": "dpo", "max_length": 2048, "batch_size": 64},
        actor={"mb_spec": {"max_tokens_per_mb": 4096}},
    )
    actor = found["actor"]
    assert (actor["training.trainer"], actor["training.micro_batch_tokens"], actor["training.sequence_length"]) == (
        "dpo",
        2048,
        2048,
    )
    assert "reference" in found
    assert "rollout.engine" not in actor


def test_megatron() -> None:
    actor = {"backend": "megatron:(attn:d4p4t2|ffn:d2p4e4)", "megatron": {"recompute_granularity": "full"}}
    found = resolved(actor=actor)["actor"]
    wanted = {
        "training.sharding": "megatron", "hardware.world_size": 32, "training.tensor_parallel": 2,
        "training.pipeline_parallel": 4, "training.expert_parallel": 4,
        "training.expert_tensor_parallel": 1, "training.gradient_checkpointing": True,
        "training.checkpointing_policy": "full", "training.grad_accum_dtype": "float32", "training.distributed_optimizer": True,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    off = resolved(actor={**actor, "gradient_checkpointing": False})["actor"]
    assert off["training.gradient_checkpointing"] is False


def test_archon_recomputes_what_its_mode_says() -> None:
    for mode, policy in ((None, "every_other_product"), ("full", "full"), ("selective", "every_other_product")):
        more = {} if mode is None else {"archon": {"ac_mode": mode}}
        found = resolved(actor={"backend": "archon:d8", **more})["actor"]
        assert (found["training.gradient_checkpointing"], found["training.checkpointing_policy"]) == (True, policy)
    unknown = areal.read(
        merge(RL, {"actor": {"backend": "archon:d8", "archon": {"ac_mode": "memory_budget"}}}), "c.yaml"
    )
    assert "training.gradient_checkpointing" in {one.fact for one in unknown.documents[0].unresolved}


def test_ranks_of_a_sequence_share_the_limit_of_a_micro_batch() -> None:
    assert resolved(actor={"backend": "fsdp:d2c4"})["actor"]["training.micro_batch_tokens"] == 2560


def test_a_policy_that_shares_devices_with_its_engine_leaves_them() -> None:
    found = resolved(rollout={"scheduling_strategy": {"type": "colocation", "target": "actor"}})["actor"]
    assert (found["rollout.colocated"], found["rollout.sleep_mode"]) == (True, True)
    assert (found["training.offload_param"], found["training.sleeps_while_idle"]) == ("cpu", True)


def test_sections_of_another_model_are_followed() -> None:
    found = resolved(actor={"kl_ctl": 0.1}, ref={"mb_spec": "${actor.mb_spec}"})
    assert found["reference"]["training.micro_batch_tokens"] == 10240


def test_a_split_that_is_left_out_or_of_another_release_is_open() -> None:
    without = {key: value for key, value in RL["actor"].items() if key != "backend"}
    (document,) = areal.read({**RL, "actor": without, "allocation_mode": "sglang:d1+d1"}, "c.yaml").documents
    assert "training.sharding" in {one.fact for one in document.unresolved if one.role == "actor"}


def test_sections_of_another_model_are_written_out_up_to_a_limit() -> None:
    section = {f"k{n}": n for n in range(2_000)}
    references = {f"r{n}": "${actor.big}" for n in range(2_000)}
    data = {"actor": {"backend": "fsdp:d8", "big": section, **references}}
    with at_most(50):
        (document,) = areal.read(data, "c.yaml").documents
    assert len(document.statements) + len(document.unread) < 20_000


TEACHER = {"backend": "fsdp:d1p1t4", "path": "Qwen/Qwen2.5-14B-Instruct", "dtype": "float32", "optimizer": None}


def test_a_teacher_scores_as_a_reference_does_where_there_is_none() -> None:
    (document,) = areal.read(merge(RL, {"teacher": TEACHER}), "c.yaml").documents
    assert ("model:reference", "Qwen/Qwen2.5-14B-Instruct", "teacher.path") in document.references
    facts = resolved(teacher=TEACHER)["reference"]
    assert facts["training.tensor_parallel"] == 4
    assert facts["training.param_dtype"] == "float32"
    assert facts["model.attn_implementation"] == "flash_attention_2"


def test_a_teacher_beside_a_reference_is_said_and_none_of_its_keys_counts() -> None:
    data = merge(RL, {"teacher": TEACHER, "actor": {"kl_ctl": 0.1}})
    subject = resolve("x", rules=open_rules(), documents=areal.read(data, "c.yaml").documents)
    assert subject.roles["reference"]["training.tensor_parallel"].value == 1
    assert [gap.source.key for gap in subject.gaps] == ["teacher.backend"]


@pytest.mark.parametrize(("context", "length"), [(4096, 4096), (32768, 10240)])
def test_no_sequence_is_longer_than_what_the_engine_takes(context: int, length: int) -> None:
    assert resolved(sglang={"context_length": context})["actor"]["training.sequence_length"] == length


@pytest.mark.parametrize(
    ("mode", "backend", "told"),
    [
        ("sglang.d4p1t1+d2p1t2", "fsdp", ("sglang", "fsdp", 4, 2)),
        ("d2p1t2+vllm.d4p1t1", "megatron", ("vllm", "megatron", 4, 2)),
        ("sglang:d4+fsdp:d4t2", None, ("sglang", "fsdp", 8, 2)),
        ("sglang.d4p1t1+d2p1t2", None, ("sglang", None, None, None)),
        ("d2p1t2", "fsdp", (None, None, None, None)),
    ],
)
def test_devices_that_are_named_at_once_are_those_of_engine_and_trainer(
    mode: str, backend: str | None, told: tuple[object, ...]
) -> None:
    actor = {key: value for key, value in RL["actor"].items() if key != "backend"}
    actor |= {} if backend is None else {"backend": backend}
    rollout = {key: value for key, value in RL["rollout"].items() if key != "backend"}
    data = {**RL, "actor": actor, "rollout": rollout, "allocation_mode": mode}
    (document,) = areal.read(data, "c.yaml").documents
    stated = {one.fact: one.value for one in document.statements if one.role in (None, "actor")}
    names = ("rollout.engine", "training.sharding", "hardware.world_size", "training.tensor_parallel")
    assert tuple(stated.get(name) for name in names) == told
