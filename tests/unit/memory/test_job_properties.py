"""What must hold of any job of several roles, whatever its sizes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Facts, Value
from compatcheck.core.source import Source
from compatcheck.memory.job import estimate_job
from tests.unit.memory.traits import with_traits

PROGRAMS = st.sampled_from(["verl", "search-r1", "logic-rl", "openrlhf", "trl"])
RELEASES = st.sampled_from([None, "0.2.0", "0.3.0", "0.4.1", "0.6.0", "0.9.0"])
LAYERS, HIDDEN, VOCAB = 24, 2048, 152064
PARAMETERS = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * 4 * HIDDEN) + 2 * VOCAB * HIDDEN


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Value]:
    """Draw the facts of a policy that generates."""
    program = draw(PROGRAMS)
    zero = program in {"openrlhf", "trl"}
    return {
        "model.model_type": "qwen2",
        "model.hidden_size": HIDDEN,
        "model.num_hidden_layers": LAYERS,
        "model.num_attention_heads": 16,
        "model.num_key_value_heads": 4,
        "model.intermediate_size": 4 * HIDDEN,
        "model.vocab_size": VOCAB,
        "model.parameters": PARAMETERS,
        "model.tie_word_embeddings": False,
        "model.attn_implementation": "flash_attention_2",
        "hardware.world_size": draw(st.sampled_from([4, 8, 16])),
        "hardware.memory_bytes": 80 * 2**30,
        "training.framework": program,
        "training.trainer": "grpo",
        "training.sharding": "zero" if zero else "fsdp",
        "training.zero_stage": 3 if zero else None,
        "training.param_dtype": "bfloat16" if zero else "float32",
        "training.compute_dtype": "bfloat16",
        "training.gradient_checkpointing": draw(st.booleans()),
        "training.use_remove_padding": draw(st.sampled_from([True, False])),
        "training.entropy_coefficient": draw(st.sampled_from([0.0, 0.001])),
        "training.max_prompt_length": 512,
        "training.max_response_length": draw(st.integers(64, 8192)),
        "training.micro_batch_size": draw(st.integers(1, 64)),
        "training.micro_batch_is_global": False,
        "training.reference_model": draw(st.booleans()),
        "rollout.log_prob_micro_batch_size": draw(st.integers(1, 64)),
        "rollout.log_prob_micro_batch_is_global": False,
        "rollout.engine": draw(st.sampled_from(["vllm", "sglang", "hf"])),
        "rollout.gpu_memory_utilization": draw(st.sampled_from([0.3, 0.5, 0.8])),
        "rollout.tensor_parallel": draw(st.sampled_from([1, 2, 4])),
        "rollout.free_cache_engine": draw(st.booleans()),
        "rollout.colocated": draw(st.booleans()),
    }


def need(values: dict[str, Value], release: str | None) -> tuple[int, int]:
    """Return expected and high bound of what the fullest device needs."""
    prompt, response = values["training.max_prompt_length"], values["training.max_response_length"]
    assert isinstance(prompt, int)
    assert isinstance(response, int)
    values = {**values, "training.sequence_length": prompt + response}
    packages = {} if release is None else {"verl": Package("verl", release, Source("test"))}
    facts = Facts(with_traits(values, packages))
    found = estimate_job({"actor": facts}, Environment("test", packages, complete=False))
    assert found.phases
    for phase in found.phases:
        assert phase.size.low <= phase.size.expected <= phase.size.high, phase.name
    return found.device.expected, found.device.high


def grown(values: dict[str, Value], name: str, by: int) -> dict[str, Value]:
    value = values[name]
    assert isinstance(value, int)
    return {**values, name: value + by}


@settings(max_examples=60)
@given(jobs(), RELEASES, st.integers(1, 64))
def test_larger_batches_and_longer_completions_never_need_less(
    values: dict[str, Value], release: str | None, by: int
) -> None:
    before = need(values, release)
    for name in ("training.micro_batch_size", "rollout.log_prob_micro_batch_size", "training.max_response_length"):
        after = need(grown(values, name, by), release)
        assert after[0] >= before[0], name


@settings(max_examples=60)
@given(jobs(), RELEASES)
def test_more_ranks_and_state_on_the_host_never_need_more(values: dict[str, Value], release: str | None) -> None:
    before = need(values, release)[0]
    world = values["hardware.world_size"]
    assert isinstance(world, int)
    assert need({**values, "hardware.world_size": 2 * world}, release)[0] <= before
    assert need({**values, "training.offload_optimizer": "cpu"}, release)[0] <= before


@settings(max_examples=60)
@given(jobs(), RELEASES)
def test_a_larger_share_and_a_reference_never_need_less(values: dict[str, Value], release: str | None) -> None:
    before = need(values, release)[0]
    share = values["rollout.gpu_memory_utilization"]
    assert isinstance(share, float)
    assert need({**values, "rollout.gpu_memory_utilization": share + 0.1}, release)[0] >= before
    assert need({**values, "training.reference_model": True}, release)[0] >= before
