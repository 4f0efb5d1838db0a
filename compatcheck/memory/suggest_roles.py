"""Changes for jobs that generate: batches of scoring and update, the engine's share, what waits on the host, completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.effects import CHANGES_SERVICE, CHANGES_TRAINING, SAME_RESULT, SLOWER
from compatcheck.core.suggestions import SuggestedChange
from compatcheck.memory.batches import NOT_MULTIPLIED, SCORING, UPDATE, read_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.facts import Facts, Value

_SHORTEST = 256
"""Completions are not proposed to be shorter than this."""
_LEAST_SHARE, _MOST_SHARE = 0.2, 0.95
_SHORTEST_REQUEST = 2048
"""A server is not proposed to take shorter ones."""


def propose(facts: Facts) -> Iterator[SuggestedChange]:
    """Yield the changes that a job's settings leave open; nothing where no engine generates."""
    values = {name: fact.value for name, fact in facts.items()}
    if values.get("rollout.engine") is None:
        return
    yield from _batch(facts, SCORING, "rollout.global_batch_size")
    yield from _batch(facts, UPDATE, "training.global_batch_size")
    yield from _filled(facts, values)
    yield from _engine(values)
    yield from _host(values)
    response, start = values.get("training.max_response_length"), values.get("training.max_start_length")
    if isinstance(response, int) and response >= 2 * _SHORTEST and start is None:
        changed: dict[str, Value] = {"training.max_response_length": response // 2}
        yield SuggestedChange(f"completions of {response // 2:,} tokens", changed, CHANGES_TRAINING)
    if values.get("program.code") == "verl" and values.get("training.use_remove_padding") is False:
        note = "the model type must be one verl can unpad"
        yield SuggestedChange("use_remove_padding", {"training.use_remove_padding": True}, SAME_RESULT, note)


def propose_for_server(facts: Facts) -> Iterator[SuggestedChange]:
    """Yield the changes that the settings of a server leave open."""
    values = {name: fact.value for name, fact in facts.items()}
    share, length = values.get("rollout.gpu_memory_utilization"), values.get("rollout.max_model_len")
    if isinstance(share, float) and share < _MOST_SHARE and values.get("rollout.engine") == "vllm":
        words = f"gpu_memory_utilization {share} → {_MOST_SHARE}"
        yield SuggestedChange(words, {"rollout.gpu_memory_utilization": _MOST_SHARE}, SAME_RESULT, "a larger KV cache")
    yield from _wider(values, "tensor parallel", SAME_RESULT)
    yield from _eager(values)
    for name, least in (("rollout.max_num_seqs", 256), ("rollout.max_num_batched_tokens", 2048)):
        count = values.get(name)
        if isinstance(count, int) and count > least:
            key = name.rpartition(".")[2]
            yield SuggestedChange(f"{key} {count:,} → {least:,}", {name: least}, SLOWER, "a smaller profile run")
    length = length if isinstance(length, int) else values.get("model.max_position_embeddings")
    for part in (2, 4, 8, 16):
        if isinstance(length, int) and length // part >= _SHORTEST_REQUEST:
            changed: dict[str, Value] = {"rollout.max_model_len": length // part}
            yield SuggestedChange(f"requests of up to {length // part:,} tokens", changed, CHANGES_SERVICE)


def propose_for_beside(role: str, facts: Facts) -> Iterator[SuggestedChange]:
    """Yield the changes that the settings of a model beside the actor leave open, which has a key of its own for its batch."""
    for one in _batch(
        facts, UPDATE, "training.global_batch_size" if role == "critic" else "rollout.global_batch_size", role
    ):
        yield one._replace(words=f"{role}: {one.words}", role=role)


def _batch(facts: Facts, names: tuple[str, str, str], whole: str, role: str = "actor") -> Iterator[SuggestedChange]:
    """Propose half the sequences of a device, and one (in verl's forks: one prompt's completions)."""
    batch, key = read_batch(facts, names, whole, role), facts.get(names[0])
    if batch is None or batch.filled or key is None or not isinstance(key.value, int):
        return
    fork = "program.batches_count_prompts" in facts and bool(facts["program.batches_count_prompts"].value)
    n = facts.get("rollout.n")
    unit = n.value if fork and role not in NOT_MULTIPLIED and n is not None and isinstance(n.value, int) else 1
    flag = facts.get(names[1])
    ranks = _ranks(facts) if (bool(flag.value) if flag is not None else fork) else 1
    name = batch.key or names[0].rpartition(".")[2]
    for prompts in sorted({max(1, batch.sequences // 2 // unit), 1}, reverse=True):
        value, each = prompts * ranks, prompts * unit
        if value < key.value and each < batch.sequences:
            changed: dict[str, Value] = {names[0]: value}
            words = f"{name} {key.value} → {value}"
            steps = facts.get("training.gradient_accumulation_steps") if names is UPDATE else None
            if steps is not None and steps.origin != "derived" and isinstance(steps.value, int):
                if key.value % value:
                    continue
                changed["training.gradient_accumulation_steps"] = steps.value * key.value // value
                words += f", accumulate {steps.value} → {steps.value * key.value // value}"
            note = f"{each:,} sequences a device at once" if each > 1 else "one sequence a device at once"
            yield SuggestedChange(words, changed, SLOWER, note)


def _ranks(facts: Facts) -> int:
    def get(name: str) -> int:
        fact = facts.get(name)
        return fact.value if fact is not None and isinstance(fact.value, int) and fact.value > 0 else 1

    split = get("training.context_parallel") * get("training.tensor_parallel") * get("training.pipeline_parallel")
    return max(1, get("hardware.world_size") // split)


def _filled(facts: Facts, values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    """Propose batches filled by tokens, of the longest sequence: the least that verl takes (rearrange_micro_batches)."""
    length = values.get("training.sequence_length")
    if (
        not values.get("program.batches_by_tokens")
        or not values.get("training.use_remove_padding")
        or UPDATE[2] in facts
        or not isinstance(length, int)
    ):
        return
    changed: dict[str, Value] = {UPDATE[2]: length, SCORING[2]: length}
    words = (
        f"use_dynamic_bsz with {length:,} tokens a device (ppo_max_token_len_per_gpu, log_prob_max_token_len_per_gpu)"
    )
    yield SuggestedChange(words, changed, SLOWER)


def _engine(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    share = values.get("rollout.gpu_memory_utilization")
    if values.get("rollout.engine") == "hf":
        return
    if isinstance(share, float | int):
        for less in (0.1, 0.2):
            smaller = round(float(share) - less, 2)
            if smaller >= _LEAST_SHARE:
                changed: dict[str, Value] = {"rollout.gpu_memory_utilization": smaller}
                yield SuggestedChange(
                    f"gpu_memory_utilization {share} → {smaller}", changed, SLOWER, "a smaller KV pool"
                )
    yield from _wider(values, "rollout tensor parallel", SLOWER)
    yield from _eager(values)
    mode, frees = values.get("rollout.sleep_mode"), values.get("rollout.free_cache_engine")
    by_cache = bool(values.get("program.engine_sleeps_by_cache"))
    sleeps = frees and mode is not False if by_cache else mode or frees
    if values.get("rollout.colocated") is not False and not sleeps:
        asked: dict[str, Value] = {"rollout.free_cache_engine": True} if by_cache else {}
        asked |= {} if by_cache and mode is not False else {"rollout.sleep_mode": True}
        yield SuggestedChange(
            "the engine sleeps while training runs", asked, SLOWER, "loads its weights again each step"
        )


def _wider(values: Mapping[str, Value], name: str, effect: str) -> Iterator[SuggestedChange]:
    degree, gpus = values.get("rollout.tensor_parallel") or 1, values.get("hardware.gpus_per_node")
    heads = values.get("model.num_attention_heads")
    if isinstance(degree, int) and isinstance(gpus, int) and isinstance(heads, int):
        wider = 2 * degree
        if gpus % wider == 0 and heads % wider == 0:
            yield SuggestedChange(f"{name} {degree} → {wider}", {"rollout.tensor_parallel": wider}, effect)


def _eager(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if values.get("rollout.cuda_graphs"):
        eager: dict[str, Value] = {"rollout.enforce_eager": True, "rollout.cuda_graphs": False}
        yield SuggestedChange("enforce_eager", eager, SLOWER, "no CUDA graphs")


def _host(values: Mapping[str, Value]) -> Iterator[SuggestedChange]:
    if values.get("program.moves_idle_state"):
        if values.get("training.offload_param") is None:
            yield SuggestedChange("policy's param_offload", {"training.offload_param": "cpu"}, SLOWER)
        if values.get("training.offload_optimizer") is None:
            yield SuggestedChange("policy's optimizer_offload", {"training.offload_optimizer": "cpu"}, SLOWER)
    asleep = values.get("training.sleeps_while_idle") or values.get("training.offload_optimizer") is not None
    stage, shared = values.get("training.zero_stage"), values.get("rollout.colocated")
    if values.get("program.sleeps_while_idle") and shared and stage == 3 and not asleep:
        yield SuggestedChange("deepspeed_enable_sleep", {"training.sleeps_while_idle": True}, SLOWER)
