from __future__ import annotations

import pytest

from compatcheck.core.estimate import Estimate, Phase
from compatcheck.core.facts import Fact, Facts, Value
from compatcheck.memory.job import describe_job, estimate_job

GIB = 2**30
MODEL: dict[str, Value] = {
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
    "hardware.world_size": 8,
    "hardware.memory_bytes": 80 * GIB,
    "training.sequence_length": 2048,
}
ACTOR = {
    **MODEL,
    "training.framework": "verl",
    "training.trainer": "grpo",
    "training.sharding": "fsdp",
    "training.param_dtype": "float32",
    "training.compute_dtype": "bfloat16",
    "training.mixed_precision": "bf16",
    "training.gradient_checkpointing": True,
    "training.micro_batch_size": 4,
    "rollout.log_prob_micro_batch_size": 16,
    "rollout.engine": "vllm",
    "rollout.gpu_memory_utilization": 0.5,
    "rollout.tensor_parallel": 2,
    "rollout.colocated": True,
    "rollout.enforce_eager": True,
    "rollout.cuda_graphs": False,
    "rollout.free_cache_engine": True,
}
REFERENCE = {
    **MODEL,
    "training.framework": "verl",
    "training.trainer": "grpo",
    "training.sharding": "fsdp",
    "training.param_dtype": "bfloat16",
    "training.micro_batch_size": 16,
}


def make_facts(values: dict[str, Value]) -> Facts:
    return Facts({name: Fact(name, value, "set") for name, value in values.items()})


def find_phase(estimate: Estimate, role: str, name: str) -> Phase:
    (found,) = [phase for phase in estimate.phases if (phase.role, phase.name) == (role, name)]
    return found


def bytes_of(phase: Phase, kind: str, role: str | None = None) -> int:
    return sum(part.size.expected for part in phase.components if part.kind == kind and role in (None, part.role))


def price(actor: dict[str, Value], **roles: dict[str, Value]) -> Estimate:
    return estimate_job({"actor": make_facts(actor), **{name: make_facts(values) for name, values in roles.items()}})


def test_roles_take_turns_and_never_add_up_to_one_instant() -> None:
    found = price(ACTOR, reference=REFERENCE)
    names = [(phase.role, phase.name) for phase in found.phases]
    assert names[0] == ("rollout", "rollout")
    assert ("actor", "backward") in names
    assert ("actor", "log_probabilities") in names
    assert ("reference", "forward") in names
    backward = find_phase(found, "actor", "backward")
    assert bytes_of(backward, "kv_cache") == 0
    assert bytes_of(find_phase(found, "rollout", "rollout"), "activations") == 0
    assert found.device.expected < sum(phase.size.expected for phase in found.phases)


def test_what_idle_roles_leave_behind_is_in_every_phase() -> None:
    found = price(ACTOR, reference=REFERENCE)
    shard = 2 * 7615616512 // 8
    for phase in found.phases:
        assert bytes_of(phase, "parameters", "reference") == pytest.approx(shard, rel=0.001)


def test_state_that_moves_while_idle_is_there_at_work() -> None:
    offloaded = price(
        {**ACTOR, "training.offload_param": "cpu", "training.offload_optimizer": "cpu"}, reference=REFERENCE
    )
    resident = price(ACTOR, reference=REFERENCE)
    scoring = find_phase(offloaded, "reference", "forward")
    assert bytes_of(scoring, "parameters", "actor") == 0
    assert bytes_of(scoring, "optimizer_states", "actor") == 0
    assert bytes_of(find_phase(resident, "reference", "forward"), "optimizer_states", "actor") == 8 * 7615616512 // 8
    for name in ("backward", "step"):
        assert find_phase(offloaded, "actor", name).size == find_phase(resident, "actor", name).size


def test_the_engine_takes_a_share_of_the_whole_device() -> None:
    rollout = find_phase(price(ACTOR), "rollout", "rollout")
    engine = bytes_of(rollout, "parameters", "rollout") + bytes_of(rollout, "kv_cache", "rollout")
    assert engine == pytest.approx(0.5 * 80 * GIB, abs=2)


def test_old_forks_take_a_share_of_what_is_free() -> None:
    found = price({**ACTOR, "training.framework": "search-r1"})
    rollout = find_phase(found, "rollout", "rollout")
    actor = bytes_of(rollout, "parameters", "actor") + bytes_of(rollout, "optimizer_states", "actor")
    weights = bytes_of(rollout, "parameters", "rollout")
    assert bytes_of(rollout, "kv_cache") == pytest.approx(0.5 * (80 * GIB - actor - weights), abs=2)


def test_an_engine_that_does_not_sleep_stays_while_training() -> None:
    asleep = find_phase(price(ACTOR), "actor", "backward")
    awake = find_phase(price({**ACTOR, "rollout.free_cache_engine": False}), "actor", "backward")
    assert bytes_of(asleep, "kv_cache") == 0
    assert bytes_of(awake, "kv_cache") > 20 * GIB


def test_roles_on_devices_of_their_own_share_nothing() -> None:
    apart = price({**ACTOR, "rollout.colocated": False}, reference={**REFERENCE, "rollout.colocated": False})
    assert bytes_of(find_phase(apart, "actor", "backward"), "parameters", "reference") == 0
    assert bytes_of(find_phase(apart, "rollout", "rollout"), "optimizer_states") == 0


def test_each_process_has_one_cuda_context() -> None:
    for phase in price(ACTOR, reference=REFERENCE).phases:
        assert [part.name for part in phase.components].count("CUDA context") == 1


def test_a_larger_scoring_batch_only_moves_the_scoring_phase() -> None:
    small, large = price(ACTOR), price({**ACTOR, "rollout.log_prob_micro_batch_size": 64})
    assert bytes_of(find_phase(large, "actor", "log_probabilities"), "logits") == 4 * bytes_of(
        find_phase(small, "actor", "log_probabilities"), "logits"
    )
    assert find_phase(large, "actor", "backward") == find_phase(small, "actor", "backward")


def test_a_job_without_generation_is_one_role() -> None:
    facts = {name: value for name, value in ACTOR.items() if not name.startswith("rollout.")}
    found = estimate_job({"train": make_facts({**facts, "training.trainer": "sft"})})
    assert [phase.name for phase in found.phases] == ["load", "forward", "backward", "step"]


def test_a_job_is_named_by_model_batch_and_devices() -> None:
    assert (
        describe_job({"actor": make_facts({**ACTOR, "hardware.gpu": "H100-80GB"})})
        == "qwen2, 4 × 2,048 tokens, FSDP, 8 × H100-80GB"
    )


def test_what_is_missing_is_named() -> None:
    found = price({name: value for name, value in ACTOR.items() if name != "model.hidden_size"})
    assert found.phases == ()
    assert found.needs == ("model.hidden_size",)
