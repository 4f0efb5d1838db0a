from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.estimate import Estimate, Phase
from compatcheck.core.facts import Facts, Value
from compatcheck.core.source import Source
from compatcheck.memory.closed_form.context import CONTEXT
from compatcheck.memory.job import describe_job, estimate_job
from tests.unit.memory.traits import with_traits

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


def make_facts(values: dict[str, Value], packages: Mapping[str, Package] | None = None) -> Facts:
    return Facts(with_traits(values, packages))


def find_phase(estimate: Estimate, role: str, name: str) -> Phase:
    (found,) = [phase for phase in estimate.phases if (phase.role, phase.name) == (role, name)]
    return found


def bytes_of(phase: Phase, kind: str, role: str | None = None) -> int:
    return sum(part.size.expected for part in phase.components if part.kind == kind and role in (None, part.role))


def price(actor: dict[str, Value], **roles: dict[str, Value]) -> Estimate:
    return estimate_job({"actor": make_facts(actor), **{name: make_facts(values) for name, values in roles.items()}})


def price_with(packages: dict[str, str], actor: dict[str, Value]) -> Estimate:
    source = Source("requirements.txt")
    found = {name: Package(name, release, source) for name, release in packages.items()}
    installed = Environment("requirements.txt", found, complete=True)
    return estimate_job({"actor": make_facts(actor, found)}, installed)


def test_roles_take_turns_and_never_add_up_to_one_instant() -> None:
    found = price(ACTOR, reference=REFERENCE)
    names = [(phase.role, phase.name) for phase in found.phases]
    assert names[:2] == [("rollout", "weight_sync"), ("rollout", "rollout")]
    assert ("actor", "backward") in names
    assert ("actor", "log_probabilities") in names
    assert ("reference", "forward") in names
    backward = find_phase(found, "actor", "backward")
    assert bytes_of(backward, "kv_cache") == 0
    assert bytes_of(find_phase(found, "rollout", "rollout"), "activations") == 0
    assert found.device.expected < sum(phase.size.expected for phase in found.phases)


def test_what_idle_roles_leave_behind_is_in_every_phase() -> None:
    found = price(
        {**ACTOR, "training.framework": "search-r1"}, reference={**REFERENCE, "training.framework": "search-r1"}
    )
    shard = 2 * 7615616512 // 8
    for phase in found.phases:
        assert bytes_of(phase, "parameters", "reference") == pytest.approx(shard, rel=0.001)


def test_verl_keeps_the_reference_on_the_host_whatever_its_key_says() -> None:
    for phase in price(ACTOR, reference=REFERENCE).phases:
        assert bytes_of(phase, "parameters", "reference") == 0
    scoring = find_phase(price(ACTOR, reference=REFERENCE), "reference", "forward")
    assert bytes_of(scoring, "live_parameters", "reference") > 2 * 2 * 152064 * 3584


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


def test_an_engine_that_nobody_names_is_asked_for() -> None:
    found = price({name: value for name, value in ACTOR.items() if name != "rollout.engine"})
    assert (found.phases, found.needs) == ((), ("rollout.engine",))


@pytest.mark.parametrize(
    ("left_out", "needs"),
    [
        ("rollout.colocated", ("rollout.colocated",)),
        ("rollout.gpu_memory_utilization", ("rollout.gpu_memory_utilization",)),
    ],
)
def test_what_a_program_of_an_unknown_release_decides_about_its_engine_is_asked_for(
    left_out: str, needs: tuple[str, ...]
) -> None:
    known = {name: value for name, value in ACTOR.items() if name != left_out}
    assert price(known, reference=REFERENCE).needs == needs
    assert not price({**known, "rollout.engine": "hf"}, reference=REFERENCE).needs


def test_old_forks_take_a_share_of_what_was_free_at_the_start() -> None:
    found = price({**ACTOR, "training.framework": "search-r1"})
    rollout = find_phase(found, "rollout", "rollout")
    taken = bytes_of(rollout, "parameters") + bytes_of(rollout, "workspace", "rollout") + CONTEXT.expected
    assert bytes_of(rollout, "optimizer_states", "actor") == 7615616512
    assert bytes_of(rollout, "kv_cache") == pytest.approx(0.5 * (80 * GIB - taken), abs=2)


def test_sglang_takes_a_share_of_what_is_free() -> None:
    found = price({**ACTOR, "rollout.engine": "sglang"})
    rollout = find_phase(found, "rollout", "rollout")
    actor, weights = bytes_of(rollout, "parameters", "actor"), bytes_of(rollout, "parameters", "rollout")
    assert bytes_of(rollout, "kv_cache") == pytest.approx(0.5 * (80 * GIB - actor) - weights, abs=2)


@pytest.mark.parametrize(("release", "counted"), [("0.7.3", 0), ("0.8.2", 1), ("0.9.2", 0)])
def test_the_budget_of_vllm_counts_what_else_is_there_in_some_releases(release: str, counted: int) -> None:
    rollout = find_phase(price_with({"vllm": release}, ACTOR), "rollout", "rollout")
    engine = bytes_of(rollout, "parameters", "rollout") + bytes_of(rollout, "kv_cache", "rollout")
    actor = bytes_of(rollout, "parameters", "actor")
    assert engine == pytest.approx(40 * GIB - counted * actor, abs=2)


def test_sequences_that_sample_at_once_are_in_the_high_bound() -> None:
    few, many = (
        find_phase(price({**ACTOR, "rollout.max_num_seqs": count}), "rollout", "rollout").size for count in (256, 1024)
    )
    assert few.expected == many.expected
    assert many.high - few.high == 16 * 768 * 152064


def test_an_engine_whose_share_holds_no_cache_cannot_start() -> None:
    found = price({**ACTOR, "rollout.gpu_memory_utilization": 0.08})
    assert found.verdict.outcome == "does_not_fit"
    assert "cannot start" in str(found.verdict.primary)


@pytest.mark.parametrize(("release", "kept"), [("0.2.0", True), ("0.3.0", False), ("0.7.0", False)])
def test_an_offloaded_policy_leaves_before_generation_from_0_3_on(release: str, kept: bool) -> None:  # noqa: FBT001
    offloaded = {**ACTOR, "training.offload_param": "cpu"}
    found = price_with({"verl": release}, offloaded)
    assert (bytes_of(find_phase(found, "rollout", "rollout"), "parameters", "actor") > 0) is kept


@pytest.mark.parametrize(("release", "policy", "cache"), [("0.3.0", 1, 1), ("0.4.1", 1, 0), ("0.7.0", 0, 0)])
def test_what_handing_over_weights_needs_by_release(release: str, policy: int, cache: int) -> None:
    found = price_with({"verl": release}, {**ACTOR, "training.offload_param": "cpu"})
    sync = find_phase(found, "rollout", "weight_sync")
    assert bytes_of(sync, "parameters", "actor") == policy * 4 * 7615616512 // 8
    assert (bytes_of(sync, "kv_cache") > 0) is bool(cache)
    assert bytes_of(sync, "live_parameters", "actor") == (4 + 2) * 152064 * 3584


def test_an_engine_that_does_not_sleep_stays_while_training() -> None:
    asleep = find_phase(price(ACTOR), "actor", "backward")
    awake = find_phase(price({**ACTOR, "rollout.free_cache_engine": False}), "actor", "backward")
    assert bytes_of(asleep, "kv_cache") == 0
    assert bytes_of(awake, "kv_cache") > 20 * GIB


@pytest.mark.parametrize(("frees", "sleeps"), [(False, True), (True, False)])
def test_verl_needs_both_settings_for_its_engine_to_sleep(*, frees: bool, sleeps: bool) -> None:
    asked = {"rollout.free_cache_engine": frees, "rollout.sleep_mode": sleeps}
    awake = find_phase(price_with({"verl": "0.8.0"}, {**ACTOR, **asked}), "actor", "backward")
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


def test_a_global_micro_batch_is_divided_and_in_forks_multiplied_by_n() -> None:
    keys: dict[str, Value] = {"training.micro_batch_size": 64, "training.micro_batch_is_global": True, "rollout.n": 16}
    verl = find_phase(price({**ACTOR, **keys}), "actor", "backward")
    fork = find_phase(price({**ACTOR, **keys, "training.framework": "logic-rl"}), "actor", "backward")
    fork_alone = price({**ACTOR, **keys, "training.framework": "logic-rl", "rollout.n": 1})
    tokens = 2048 * 152064
    assert bytes_of(verl, "logits") == 4 * 8 * tokens
    assert bytes_of(find_phase(fork_alone, "actor", "backward"), "logits") == 6 * 8 * tokens
    assert bytes_of(fork, "logits") == 6 * 128 * tokens


def test_forks_do_not_multiply_the_critic() -> None:
    keys: dict[str, Value] = {"training.framework": "logic-rl", "rollout.n": 16, "training.micro_batch_size": 64}
    values = {**ACTOR, **keys, "training.gradient_checkpointing": False}
    critic = {name: value for name, value in values.items() if name != "rollout.engine"}
    found = price(values, critic=critic)
    kept = [bytes_of(find_phase(found, role, "backward"), "activations") for role in ("actor", "critic")]
    assert kept[0] > 15 * kept[1]


def test_a_micro_batch_is_never_larger_than_what_a_device_holds() -> None:
    held: dict[str, Value] = {"training.global_batch_size": 256, "rollout.global_batch_size": 512}
    large = price({**ACTOR, **held, "training.micro_batch_size": 500, "rollout.log_prob_micro_batch_size": 500})
    exact = price({**ACTOR, "training.micro_batch_size": 32, "rollout.log_prob_micro_batch_size": 64})
    assert large.phases == exact.phases
    assert any("more than the 32 sequences a device holds" in entry.reason for entry in large.assumptions)


@pytest.mark.parametrize(
    "keys", [{"training.micro_batch_size": 8}, {"training.micro_batch_tokens": 8 * 1536}], ids=["sequences", "tokens"]
)
def test_gradients_of_earlier_micro_batches_are_there_in_the_loss_of_later_ones(keys: dict[str, Value]) -> None:
    share = 4 * 7615616512 // 8
    values = {**ACTOR, **keys, "training.sequence_length": 1536}
    for batch, held in ((64, 0), (128, share)):
        found = find_phase(price({**values, "training.global_batch_size": batch}), "actor", "forward")
        assert bytes_of(found, "gradients", "actor") == pytest.approx(held, rel=0.001)


def test_batches_filled_by_tokens() -> None:
    filled: dict[str, Value] = {"training.micro_batch_tokens": 65536, "rollout.log_prob_micro_batch_tokens": 16384}
    found = price({**ACTOR, **filled})
    assert bytes_of(find_phase(found, "actor", "backward"), "logits") == 4 * 65536 * 152064
    assert bytes_of(find_phase(found, "actor", "log_probabilities"), "logits") == 2 * 16384 * 152064
    short = price({**ACTOR, "rollout.log_prob_micro_batch_tokens": 1000, "training.use_remove_padding": True})
    scoring = find_phase(short, "actor", "log_probabilities")
    (logits,) = [part.size for part in scoring.components if part.kind == "logits"]
    assert logits.low == logits.expected == 2 * 2048 * 152064


def test_without_padding_the_low_bound_is_of_sequences_half_as_long() -> None:
    padded = find_phase(price({**ACTOR, "training.use_remove_padding": False}), "actor", "log_probabilities")
    packed = find_phase(price({**ACTOR, "training.use_remove_padding": True}), "actor", "log_probabilities")
    logits = [part for phase in (padded, packed) for part in phase.components if part.kind == "logits"]
    assert logits[1].size.low * 2 == logits[1].size.expected
    assert logits[0].size.low == logits[0].size.expected


def test_single_sequences_that_are_kept_at_once_are_not_all_at_the_limit() -> None:
    alone: dict[str, Value] = {
        **{name: value for name, value in ACTOR.items() if name != "training.gradient_checkpointing"},
        "training.gradient_checkpointing": False,
        "training.sharding": "megatron",
        "training.use_remove_padding": True,
        "training.micro_batch_size": 1,
        "training.global_batch_size": 64,
        "rollout.global_batch_size": 64,
    }
    (one,) = [
        part.size for part in find_phase(price(alone), "actor", "backward").components if part.kind == "activations"
    ][:1]
    staged = find_phase(price({**alone, "training.pipeline_parallel": 4}), "actor", "backward")
    (many,) = [part.size for part in staged.components if part.kind == "activations"][:1]
    assert one.low > 0.9 * one.expected  # one alone reaches the limit some day
    assert many.low < 0.6 * many.expected


def test_a_verdict_says_how_long_sequences_may_be_on_average() -> None:
    unpadded: dict[str, Value] = {**ACTOR, "training.use_remove_padding": True, "training.micro_batch_size": 64}
    found = price(unpadded).verdict
    words = re.search(r"up to (\d+)% of that", str(found.condition))
    assert words is not None
    share = int(words[1]) / 100
    for length, fits in ((int(2048 * (share - 0.02)), True), (int(2048 * (share + 0.02)), False)):
        shorter = price({**unpadded, "training.sequence_length": length}).verdict
        assert shorter.margin_bytes is not None
        assert (shorter.margin_bytes >= 0) is fits
    assert price({**unpadded, "training.use_remove_padding": False}).verdict.condition is None
    assert price({**unpadded, "training.micro_batch_size": 1}).verdict.condition is None


def test_a_batch_that_is_filled_by_tokens_is_full_of_shorter_sequences_for_a_while() -> None:
    filled: dict[str, Value] = {
        **{name: value for name, value in ACTOR.items() if name != "training.micro_batch_size"},
        "training.use_remove_padding": True,
        "training.micro_batch_tokens": 96000,
        "training.global_batch_size": 8 * 64,
        "rollout.global_batch_size": 8 * 64,
    }
    found = price(filled).verdict
    words = re.search(r"up to (\d+)% of that", str(found.condition))
    assert words is not None
    share = int(words[1]) / 100
    assert share < 96000 / (64 * 2048)  # the batch is full down to this
    for length, fits in ((int(2048 * (share - 0.04)), True), (int(2048 * (share + 0.04)), False)):
        margin = price({**filled, "training.sequence_length": length}).verdict.margin_bytes
        assert margin is not None
        assert (margin >= 0) is fits


def test_batches_without_padding_are_told_by_either_name() -> None:
    long: dict[str, Value] = {**ACTOR, "training.micro_batch_size": 64}
    by_verl, by_swift = (price({**long, f"training.{key}": True}) for key in ("use_remove_padding", "padding_free"))
    assert by_verl.verdict.condition == by_swift.verdict.condition
    assert by_verl.needed == by_swift.needed


def test_a_critic_has_no_logits_and_no_head() -> None:
    critic = {name: value for name, value in ACTOR.items() if not name.startswith("rollout.")}
    phase = find_phase(price(ACTOR, critic=critic), "critic", "backward")
    assert bytes_of(phase, "logits") == 0
    assert bytes_of(phase, "parameters", "critic") == 4 * (7615616512 - 152064 * 3584) // 8


def test_the_reference_a_fact_names_is_a_role() -> None:
    fork: dict[str, Value] = {**ACTOR, "training.framework": "logic-rl", "training.reference_model": True}
    found = price(fork)
    scoring = find_phase(found, "reference", "forward")
    assert bytes_of(scoring, "parameters", "reference") == 2 * 7615616512 // 8
    assert bytes_of(scoring, "logits", "reference") == 2 * (16 // 8) * 2048 * 152064


def test_an_index_of_unknown_size_leaves_no_run_that_fits() -> None:
    small: dict[str, Value] = {**ACTOR, "hardware.memory_bytes": 800 * GIB, "rollout.gpu_memory_utilization": 0.2}
    assert price(small).verdict.outcome == "fits"
    found = price({**small, "run.retriever_on_gpu": True})
    assert found.verdict.outcome == "marginal"
    assert [(entry.name, entry.direction) for entry in found.unmodelled] == [("retrieval index", "more")]
    assert price({**small, "run.retriever_on_gpu": True, "run.other_resident_bytes": GIB}).verdict.outcome == "fits"


def test_roles_with_processes_of_their_own_have_contexts_of_their_own() -> None:
    zero: dict[str, Value] = {
        "training.framework": "openrlhf", "training.sharding": "zero", "training.zero_stage": 3,
        "training.param_dtype": "bfloat16",
    }  # fmt: skip
    reference = {**REFERENCE, **zero}
    phase = find_phase(price({**ACTOR, **zero}, reference=reference), "actor", "backward")
    contexts = sorted((part.role, part.name) for part in phase.components if part.name.startswith("CUDA context"))
    assert contexts == [
        ("actor", "CUDA context"),
        ("reference", "CUDA context"),
        ("rollout", "CUDA context of the engine"),
    ]
    apart = {"rollout.colocated": False}
    alone = price({**ACTOR, **zero, **apart}, reference={**reference, **apart})
    assert bytes_of(find_phase(alone, "actor", "backward"), "parameters", "reference") == 0
    pair = price({**ACTOR, **zero, **apart}, reference={**reference, **apart, "training.colocated_with": "actor"})
    backward = find_phase(pair, "actor", "backward")
    assert bytes_of(backward, "parameters", "reference") == 2 * 7615616512 // 8
    assert bytes_of(backward, "other", "rollout") == 0


def test_a_frozen_model_at_stage_0_is_in_16_bits_and_whole() -> None:
    zero: dict[str, Value] = {
        **ACTOR, "training.framework": "openrlhf", "training.sharding": "zero", "training.zero_stage": 2,
        "training.param_dtype": "bfloat16",
    }  # fmt: skip
    frozen: dict[str, Value] = {
        name: value for name, value in zero.items() if name not in {"training.sharding", "training.param_dtype"}
    }
    found = price(zero, reference={**frozen, "training.zero_stage": 0, "training.mixed_precision": "bf16"})
    assert bytes_of(find_phase(found, "reference", "forward"), "parameters", "reference") == 2 * 7615616512


def test_states_that_sleep_are_away_while_others_work() -> None:
    zero: dict[str, Value] = {
        **ACTOR, "training.framework": "openrlhf", "training.sharding": "zero", "training.zero_stage": 3,
        "training.param_dtype": "bfloat16",
    }  # fmt: skip
    awake, asleep = (price({**zero, **more}) for more in ({}, {"training.sleeps_while_idle": True}))
    assert bytes_of(find_phase(awake, "rollout", "rollout"), "optimizer_states") == pytest.approx(12 * 7615616512 / 8)
    assert bytes_of(find_phase(asleep, "rollout", "rollout"), "optimizer_states") == 0
    assert bytes_of(find_phase(asleep, "rollout", "rollout"), "parameters", "actor") == 2 * 7615616512 // 8


def test_an_optimizer_that_sleeps_is_offloaded_at_work_only_where_it_is_said_to_be() -> None:
    fsdp: dict[str, Value] = {**ACTOR, "training.offload_param": "cpu", "training.sleeps_while_idle": True}
    sleeps, offloaded = (price({**fsdp, **more}) for more in ({}, {"training.offload_optimizer": "cpu"}))
    for found, at_work in ((sleeps, 8 * 7615616512 / 8), (offloaded, 0)):
        assert bytes_of(find_phase(found, "rollout", "rollout"), "optimizer_states") == 0
        assert bytes_of(find_phase(found, "actor", "backward"), "optimizer_states") == pytest.approx(at_work)


def test_no_verdict_of_failure_rests_on_checkpointing_that_nobody_spoke_of() -> None:
    silent = {name: value for name, value in ACTOR.items() if name != "training.gradient_checkpointing"}
    verl = price({**silent, "training.micro_batch_size": 8})
    assert verl.phases == price({**ACTOR, "training.micro_batch_size": 8}).phases
    assert "training.gradient_checkpointing" in {entry.fact for entry in verl.assumptions}
    zero: dict[str, Value] = {"training.framework": "openrlhf", "training.sharding": "zero", "training.zero_stage": 3}
    large: dict[str, Value] = {**zero, "training.param_dtype": "bfloat16", "training.micro_batch_size": 32}
    open_ended = price({**silent, **large})
    assert open_ended.verdict.outcome == "marginal"
    assert ("checkpointing", "less") in {(entry.name, entry.direction) for entry in open_ended.unmodelled}
    kept = price({**silent, **large, "training.gradient_checkpointing": False})
    assert kept.verdict.outcome == "does_not_fit"


def test_a_server_of_trl_is_not_on_these_devices() -> None:
    facts: dict[str, Value] = {**ACTOR, "training.framework": "trl", "rollout.colocated": False}
    found = estimate_job({"train": make_facts(facts)})
    assert "rollout" not in {phase.role for phase in found.phases}
    assert ("vLLM server", "either") in {(entry.name, entry.direction) for entry in found.unmodelled}


def test_an_engine_nobody_read_is_said() -> None:
    found = price({**ACTOR, "rollout.engine": "trtllm"})
    assert ("generation engine", "more") in {(entry.name, entry.direction) for entry in found.unmodelled}


def test_a_policy_with_adapters_is_its_own_reference() -> None:
    lora: dict[str, Value] = {**ACTOR, "training.peft": "lora", "training.lora_rank": 8}
    found = price(lora, reference=REFERENCE)
    assert "reference" not in {phase.role for phase in found.phases}
    sync = find_phase(found, "rollout", "weight_sync")
    assert bytes_of(sync, "live_parameters") == 4 * 7615616512
    layered = find_phase(price({**lora, "rollout.layered_summon": True}), "rollout", "weight_sync")
    assert bytes_of(layered, "live_parameters") == (4 + 2) * 152064 * 3584
    exported = find_phase(price({**lora, "training.sharding": "megatron"}), "rollout", "weight_sync")
    assert bytes_of(exported, "live_parameters") <= (4 + 2) * 152064 * 3584


def test_openrlhf_lowers_the_share_of_models_that_share_devices() -> None:
    zero: dict[str, Value] = {
        **ACTOR, "training.framework": "openrlhf", "training.sharding": "zero", "training.zero_stage": 3,
        "rollout.gpu_memory_utilization": 0.95,
    }  # fmt: skip
    for release, share in (("0.5.9", 0.4), ("0.6.1", 0.95)):
        rollout = find_phase(price_with({"openrlhf": release, "vllm": "0.7.3"}, zero), "rollout", "rollout")
        engine = bytes_of(rollout, "parameters", "rollout") + bytes_of(rollout, "kv_cache", "rollout")
        assert engine == pytest.approx(share * 80 * GIB, abs=2)


def test_generation_in_the_trainer_holds_a_cache_and_gathers_the_model() -> None:
    facts: dict[str, Value] = {
        **ACTOR, "training.framework": "trl", "rollout.engine": "hf", "training.sharding": "zero", "training.zero_stage": 3,
        "training.param_dtype": "bfloat16", "training.gradient_accumulation_steps": 2,
    }  # fmt: skip
    found = estimate_job({"train": make_facts(facts)})
    phase = find_phase(found, "train", "rollout")
    assert bytes_of(phase, "kv_cache") == 2 * 4 * 2048 * (2 * 2 * 4 * 128 * 28)
    assert bytes_of(phase, "live_parameters") == 2 * 7615616512


def test_the_cause_has_its_arithmetic_and_says_what_a_key_comes_to() -> None:
    held: dict[str, Value] = {"training.global_batch_size": 512, "rollout.global_batch_size": 512, "rollout.n": 32}
    run: dict[str, Value] = {
        **ACTOR, **held, "training.framework": "logic-rl", "rollout.log_prob_micro_batch_size": 160,
        "training.micro_batch_size": 8, "training.sequence_length": 4096,
    }  # fmt: skip
    verdict = price(run).verdict
    assert verdict.outcome == "does_not_fit"
    assert "logits of the update, backward: 6 B × 32 sequences × 4,096 tokens × 152,064 = 111.4 GiB" in str(
        verdict.primary
    )
    assert "8 // 8 × rollout.n 32 = 32" in str(verdict.primary)
    assert "log_prob_micro_batch_size: the peak is in backward" in verdict.ruled_out


def test_a_job_without_generation_is_one_role() -> None:
    facts = {name: value for name, value in ACTOR.items() if not name.startswith("rollout.")}
    found = estimate_job({"train": make_facts({**facts, "training.trainer": "sft"})})
    assert [phase.name for phase in found.phases] == ["load", "forward", "backward", "step"]
    beside = make_facts({**facts, "training.trainer": "sft", "rollout.engine": "vllm"})
    by_default = {**beside, "rollout.engine": beside["rollout.engine"]._replace(origin="reader-default")}
    assert estimate_job({"train": by_default}) == found


def test_an_engine_that_a_file_starts_runs_beside_any_trainer() -> None:
    found = estimate_job({"train": make_facts({**ACTOR, "training.trainer": "sft", "rollout.colocated": False})})
    assert "rollout" in [phase.name for phase in found.phases]


def test_a_batch_that_no_program_cuts_is_named_as_it_is_priced() -> None:
    facts = {name: value for name, value in ACTOR.items() if not name.startswith("rollout.")}
    alone = make_facts({**facts, "training.trainer": "sft", "training.global_batch_size": 8})
    assert describe_job({"train": alone}) == "qwen2, 4 × 2,048 tokens, FSDP, 8 × 80.0 GiB"
    assert describe_job({"actor": make_facts({**ACTOR, "training.global_batch_size": 8})}) == (
        "qwen2, 1 × 2,048 tokens, FSDP, 8 × 80.0 GiB"
    )


def test_a_job_is_named_by_model_batch_and_devices() -> None:
    assert (
        describe_job({"actor": make_facts({**ACTOR, "hardware.gpu": "H100-80GB"})})
        == "qwen2, 4 × 2,048 tokens, FSDP, 8 × H100-80GB"
    )
    over_all = {**ACTOR, "training.micro_batch_size": 64, "training.micro_batch_is_global": True}
    assert describe_job({"actor": make_facts(over_all)}) == "qwen2, 8 × 2,048 tokens, FSDP, 8 × 80.0 GiB"


def test_what_is_missing_is_named() -> None:
    found = price({name: value for name, value in ACTOR.items() if name != "model.hidden_size"})
    assert found.phases == ()
    assert found.needs == ("model.hidden_size",)


def test_trls_grpo_has_a_reference_where_its_kl_coefficient_is_not_zero() -> None:
    values: dict[str, Value] = {
        **MODEL,
        "training.framework": "trl",
        "training.trainer": "grpo",
        "training.zero_stage": 2,
        "training.sharding": "zero",
        "training.param_dtype": "bfloat16",
        "training.mixed_precision": "bf16",
        "training.peft": None,
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": 1,
        "rollout.engine": "hf",
    }

    def peak(changes: dict[str, Value]) -> tuple[int, int, int]:
        found = estimate_job({"train": make_facts({**values, **changes})})
        return tuple(max(bounds) for bounds in zip(*(phase.needed for phase in found.phases), strict=True))

    copy = 2 * 7615616512
    without = peak({"training.kl_coefficient": 0.0})
    assert peak({"training.kl_coefficient": 0.04})[0] >= without[0] + copy
    unknown = peak({})
    assert unknown[:2] == without[:2]
    assert unknown[2] >= without[2] + copy


SUPERVISED: dict[str, Value] = {
    **{name: value for name, value in ACTOR.items() if not name.startswith("rollout.")},
    "training.trainer": "sft",
    "program.code": "verl-engine",
    "training.use_remove_padding": True,
    "training.sequence_length": 4096,
    "training.global_batch_size": 512,
}
del SUPERVISED["training.micro_batch_size"]


def test_supervised_training_in_batches_of_tokens_needs_what_they_hold() -> None:
    def backward(tokens: int) -> Phase:
        found = estimate_job({"train": make_facts({**SUPERVISED, "training.micro_batch_tokens": tokens})})
        return next(phase for phase in found.phases if phase.name == "backward")

    small, large, most = backward(16384), backward(65536), backward(10**6)
    for kind in ("activations", "logits"):
        assert bytes_of(large, kind) == pytest.approx(4 * bytes_of(small, kind), rel=0.01)
        assert bytes_of(most, kind) == pytest.approx(
            4 * bytes_of(large, kind), rel=0.01
        )  # 64 sequences are all there are
    assert (
        bytes_of(small, "logits") == 4 * 16384 * 152064
    )  # log-probabilities, whose gradient takes the place of the logits


def test_an_entropy_that_is_not_compiled_takes_more_and_chunks_bound_it() -> None:
    def scoring(**more: Value) -> Phase:
        changed = {f"training.entropy_{name}": value for name, value in more.items()}
        found = price({**ACTOR, "training.use_remove_padding": True, **changed})
        return find_phase(found, "actor", "log_probabilities")

    compiled, plain, chunked = (
        scoring(compile=True),
        scoring(compile=False),
        scoring(compile=False, chunking=True),
    )
    assert bytes_of(plain, "logits") == 5 * bytes_of(compiled, "logits")
    assert bytes_of(compiled, "logits") < bytes_of(chunked, "logits") < bytes_of(plain, "logits")
    assert bytes_of(scoring(compile=True, chunking=True), "logits") == bytes_of(compiled, "logits")


SLIME = {
    **{name: value for name, value in MODEL.items() if name != "training.sequence_length"},
    "training.framework": "slime",
    "training.trainer": "grpo",
    "training.sharding": "megatron",
    "training.mixed_precision": "bf16",
    "training.tensor_parallel": 4,
    "training.micro_batch_tokens": 8192,
    "training.gradient_checkpointing": True,
    "training.use_remove_padding": True,
    "training.sleeps_while_idle": True,
    "training.offload_param": "cpu",
    "rollout.engine": "sglang",
    "rollout.gpu_memory_utilization": 0.7,
    "rollout.colocated": True,
    "rollout.sleep_mode": True,
    "rollout.multi_stage_wake_up": True,
}


def test_batches_of_tokens_need_no_length_of_a_sequence_and_that_is_said() -> None:
    estimate = price(SLIME)
    assert "8,192 tokens" in next(
        part.formula for part in find_phase(estimate, "actor", "forward").components if part.kind == "logits"
    )
    (assumed,) = [one for one in estimate.assumptions if one.fact == "training.sequence_length (actor)"] or [
        one for one in estimate.assumptions if one.fact == "training.sequence_length"
    ]
    assert assumed.value == 8192
    longer = price(SLIME | {"training.max_response_length": 16384})
    assert [one.value for one in longer.assumptions if one.fact.startswith("training.sequence_length")] == [16384]


def test_all_of_a_slime_trainer_is_away_while_the_engine_generates_and_there_while_it_trains() -> None:
    estimate = price(SLIME)
    rollout, step = find_phase(estimate, "rollout", "rollout"), find_phase(estimate, "actor", "step")
    assert bytes_of(rollout, "parameters", "actor") == bytes_of(rollout, "gradients") == 0
    assert bytes_of(rollout, "optimizer_states") == 0
    held = MODEL["model.parameters"] / 4
    assert bytes_of(step, "parameters", "actor") == pytest.approx(2 * held, rel=0.01)
    assert bytes_of(step, "gradients") == pytest.approx(4 * held, rel=0.01)
    assert bytes_of(step, "optimizer_states") > 0


def test_graphs_of_an_engine_that_its_memory_saver_holds_are_away_while_training() -> None:
    graphs = {"rollout.enforce_eager": False, "rollout.cuda_graphs": True}
    for framework, stay in (("slime", False), ("roll", True)):
        estimate = price(SLIME | graphs | {"training.framework": framework, "training.micro_batch_size": 1})
        names = {
            phase.name: {part.name for part in phase.components} for phase in estimate.phases if phase.role != "rollout"
        }
        assert ("CUDA graphs of the engine" in names["step"]) is stay
        assert "CUDA graphs of the engine" in {p.name for p in find_phase(estimate, "rollout", "rollout").components}


def test_an_engine_serves_weights_as_they_are_stored_where_others_are_trained() -> None:
    def weigh(**changed: Value) -> int:
        more = {f"model.{name}": value for name, value in changed.items()}
        return bytes_of(find_phase(price(SLIME | more), "rollout", "rollout"), "parameters", "rollout")

    whole, stored = weigh(), weigh(quantization=None, stored_quantization="gptq")
    assert whole == 2 * MODEL["model.parameters"]
    assert 0.25 < stored / whole < 0.4
    assert weigh(quantization=None, stored_quantization="gguf") == whole


def test_no_verdict_of_failure_rests_on_the_weights_of_an_engine_that_may_be_smaller() -> None:
    small = SLIME | {"rollout.gpu_memory_utilization": 0.1}
    assert "cannot start" in str(price(small).verdict.primary)
    assert "cannot start" not in str(price(small | {"training.unpriced": ("quantised_engine",)}).verdict.primary)


def test_states_on_the_host_stay_there_where_something_else_says_that_they_sleep() -> None:
    step = find_phase(price(SLIME | {"training.offload_optimizer": "cpu"}), "actor", "step")
    assert bytes_of(step, "optimizer_states") == 0
    assert bytes_of(step, "gradients") > 0


@pytest.mark.parametrize(
    ("changed", "role", "phase", "each"),
    [
        ({}, "actor", "forward", 8),
        ({}, "actor", "backward", 6),
        ({"training.entropy_coefficient": 0.01}, "actor", "backward", 12),
        ({"training.trainer": "sft", "rollout.engine": None}, "actor", "forward", 8),
    ],
)
def test_bytes_per_logit_of_slime(changed: dict[str, Value], role: str, phase: str, each: int) -> None:
    logits = bytes_of(find_phase(price(SLIME | changed), role, phase), "logits")
    assert logits == each * 8192 * MODEL["model.vocab_size"] // 4


@pytest.mark.parametrize(
    ("sharding", "entropy", "phase", "each"),
    [
        ("megatron", 0, "forward", 6),
        ("megatron", 0, "backward", 6),
        ("megatron", 0.01, "forward", 8),
        ("megatron", 0.01, "backward", 8),
        ("fsdp", 0, "forward", 10),
        ("fsdp", 0, "backward", 14),
        ("fsdp", 0.01, "forward", 18),
        ("fsdp", 0.01, "backward", 34),
    ],
)
def test_bytes_per_logit_of_roll(sharding: str, entropy: float, phase: str, each: int) -> None:
    """As `benchmarks/checkout_losses.py` prints them."""
    program = {"training.framework": "roll", "training.sharding": sharding, "training.entropy_coefficient": entropy}
    found = price(ACTOR | program)
    assert bytes_of(find_phase(found, "actor", phase), "logits") == each * 4 * 2048 * 152064


def test_optimizer_states_that_are_loaded_for_the_step_are_in_no_other_phase() -> None:
    moved: dict[str, Value] = {"training.offload_param": "cpu", "training.sleeps_while_idle": True}
    moved |= {"training.offload_optimizer": "cpu"}
    found = price(ACTOR | moved | {"training.framework": "roll", "training.sharding": "megatron"})
    states = {phase.name: bytes_of(phase, "optimizer_states") for phase in found.phases}
    assert states.pop("step") > 0
    assert set(states.values()) == {0}


def test_an_engine_that_serves_the_weights_of_the_trainer_holds_none_of_its_own() -> None:
    shared = price({**ACTOR, "program.engine_shares_weights": True})
    names = {component.name for phase in shared.phases for component in phase.components}
    assert not any("engine weights" in name or "on their way to the engine" in name for name in names)
    assert any("engine weights" in component.name for phase in price(ACTOR).phases for component in phase.components)
    pool = next(one for phase in shared.phases for one in phase.components if "KV pool" in one.name)
    assert pool.size.expected == pytest.approx(
        0.5 * 80 * GIB - 2 * 7615616512 / 2, rel=0.1
    )  # its share, less the weights
