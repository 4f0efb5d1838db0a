from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import Estimate
from compatcheck.core.facts import Facts, Value
from compatcheck.core.source import Source
from compatcheck.memory.job import estimate_job
from compatcheck.memory.largest_settings import find_wall
from compatcheck.memory.suggest import candidates, overlay
from compatcheck.memory.suggest_roles import propose
from compatcheck.resolution.settings import settings_of
from tests.unit.memory.traits import with_traits

GIB = 2**30
ACTOR: dict[str, Value] = {
    "model.model_type": "qwen2",
    "model.hidden_size": 3584,
    "model.num_hidden_layers": 28,
    "model.num_attention_heads": 28,
    "model.num_key_value_heads": 4,
    "model.intermediate_size": 18944,
    "model.vocab_size": 152064,
    "model.parameters": 7615616512,
    "model.tie_word_embeddings": False,
    "model.attn_implementation": "flash_attention_2",
    "hardware.world_size": 4,
    "hardware.gpus_per_node": 4,
    "hardware.nodes": 1,
    "hardware.memory_bytes": 80 * GIB,
    "training.max_prompt_length": 400,
    "training.max_response_length": 2048,
    "training.sequence_length": 2448,
    "training.framework": "logic-rl",
    "training.trainer": "grpo",
    "training.sharding": "fsdp",
    "training.param_dtype": "float32",
    "training.compute_dtype": "bfloat16",
    "training.gradient_checkpointing": True,
    "training.use_remove_padding": True,
    "training.peft": None,
    "training.micro_batch_size": 64,
    "training.global_batch_size": 256,
    "rollout.global_batch_size": 256,
    "rollout.log_prob_micro_batch_size": 160,
    "rollout.n": 16,
    "rollout.engine": "vllm",
    "rollout.gpu_memory_utilization": 0.6,
    "rollout.tensor_parallel": 1,
    "rollout.colocated": True,
    "rollout.cuda_graphs": True,
    "rollout.free_cache_engine": False,
}
REFERENCE = {**ACTOR, "training.param_dtype": "bfloat16", "training.micro_batch_size": 160}


def make_facts(values: dict[str, Value]) -> Facts:
    return Facts(with_traits(values))


def words(values: dict[str, Value]) -> list[str]:
    return [change.words for change in propose(make_facts(values))]


def test_batches_are_proposed_in_the_units_of_their_keys() -> None:
    found = {change.words: change for change in propose(make_facts(ACTOR))}
    assert found["micro_batch_size 64 → 8"].note == "32 sequences a device at once"
    assert found["log_prob_micro_batch_size 160 → 4"].note == "16 sequences a device at once"
    each: dict[str, Value] = {"training.framework": "verl", "training.micro_batch_size": 8}
    assert {"micro_batch_size 8 → 4", "micro_batch_size 8 → 1"} <= set(words({**ACTOR, **each}))


def test_what_is_on_already_is_not_proposed() -> None:
    eager: dict[str, Value] = {"rollout.free_cache_engine": True, "rollout.cuda_graphs": False}
    away: dict[str, Value] = {"training.offload_param": "cpu", "training.offload_optimizer": "cpu"}
    found = words({**ACTOR, **eager, **away})
    for name in ("enforce_eager", "the engine sleeps while training runs", "policy's param_offload"):
        assert name in words(ACTOR)
        assert name not in found


def test_nothing_of_it_is_proposed_without_generation() -> None:
    values = {name: value for name, value in ACTOR.items() if not name.startswith("rollout.")}
    assert words(values) == []


def test_forks_are_not_offered_what_they_do_not_have() -> None:
    found = [change.words for change in candidates({"actor": make_facts(ACTOR)})]
    for name in ("LoRA of rank 16", "FSDP CPU offload", "fused linear cross-entropy (Liger: needs liger-kernel)"):
        assert name not in found


def price_of(roles: Mapping[str, Facts]) -> Callable[[Mapping[str, Value]], Estimate]:
    """Price a job with settings as ``--set`` states them, a sequence being a prompt with its completion."""

    def price(changed: Mapping[str, Value]) -> Estimate:
        stated = {name: (value, Source("--set")) for name, value in changed.items()}
        new = {}
        for role, facts in roles.items():
            own: dict[str, Value] = {name: value for name, (value, _) in settings_of(role, stated).items()}
            completion = own.get("training.max_response_length")
            if isinstance(completion, int):
                own["training.sequence_length"] = 400 + completion
            new[role] = overlay(facts, own)
        return estimate_job(new)

    return price


def test_scoring_and_completions_have_walls() -> None:
    long: dict[str, Value] = {**ACTOR, "training.micro_batch_size": 4, "training.sequence_length": 8592}
    roles = {"actor": make_facts({**long, "training.max_response_length": 8192, "rollout.free_cache_engine": True})}
    wall = find_wall("max_response_length", roles, price_of(roles))
    assert wall.fits is not None
    for value, fits in ((wall.fits, True), (wall.fits + 1, False)):
        margin = price_of(roles)({wall.fact: value}).verdict.margin_bytes
        assert margin is not None
        assert (margin >= 0) is fits
    many: dict[str, Value] = {"training.micro_batch_size": 4, "rollout.global_batch_size": 4096}
    short = {"actor": make_facts({**ACTOR, **many, "rollout.free_cache_engine": True})}
    wall = find_wall("log_prob_micro_batch_size", short, price_of(short))
    assert wall.current == 160
    assert wall.fits is not None
    assert wall.fails == wall.fits + 1
    assert wall.fails % 4 == 0  # the key is divided by four ranks


def test_a_run_without_generation_has_no_such_wall() -> None:
    values = {name: value for name, value in ACTOR.items() if not name.startswith("rollout.")}
    roles = {"train": make_facts(values)}
    with pytest.raises(UsageError, match="no log_prob_micro_batch_size"):
        find_wall("log_prob_micro_batch_size", roles, price_of(roles))


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        (True, {"rollout.free_cache_engine": True}),
        (False, {"rollout.free_cache_engine": True, "rollout.sleep_mode": True}),
    ],
)
def test_an_engine_is_proposed_all_that_it_needs_to_sleep(*, mode: bool, asked: dict[str, Value]) -> None:
    by_cache: dict[str, Value] = {**ACTOR, "rollout.sleep_mode": mode, "program.engine_sleeps_by_cache": True}
    found = {one.words: one.facts for one in propose(make_facts(by_cache))}
    assert found["the engine sleeps while training runs"] == asked
