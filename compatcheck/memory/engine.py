"""What a generation engine holds on a device: weights, KV pool, graphs, and what is left of it while it sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Component, Size, exactly
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import DTYPE_BYTES, GIB, format_bytes
from compatcheck.memory.closed_form.context import CONTEXT
from compatcheck.memory.closed_form.kv_cache import bytes_per_token
from compatcheck.memory.closed_form.parameters import QUANTISED_BYTES, count_quantised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Fact, Value
    from compatcheck.memory.run import Run
    from compatcheck.memory.waiting_models import Habits

GRAPHS = {"vllm": Size(0, 1_400_000_000, 2_800_000_000), "sglang": Size(1_400_000_000, 3_400_000_000, 6_200_000_000)}
"""CUDA graphs, which the budget of vLLM before 0.20 and that of SGLang leave out; they stay while the engine sleeps (rule
verl/cuda-graphs-on-by-default), unless the program has SGLang's memory saver hold them. vLLM 0.9.2 1.40 GB, SGLang 6.19 GB
for one model (https://github.com/sgl-project/sglang/pull/8538);
SGLang 3.4 GB for 160 sequences, 6.2 GB for 256 (https://github.com/sgl-project/sglang/pull/5893). vLLM's high bound is twice
what it was seen to take."""
ASLEEP = Size(0, 1 * GIB, 3 * GIB)
"""What an engine that sleeps leaves behind: 1.14 GB on vLLM 0.13, https://github.com/vllm-project/vllm/issues/32714."""
GRAPHS_IN_BUDGET = (0, 20)
"""First release of vLLM that takes graphs off the KV pool (rule vllm/cuda-graphs-charged-to-the-kv-cache)."""
WHOLE_DEVICE = ((0, 8), (0, 9, 1))
"""Releases of vLLM whose budget counts all that is on the device, from and before: v1/worker/gpu_worker.py,
determine_available_memory, adds what other processes and the trainer hold to its own peak. Before and after, what was there at
the start does not count; from 0.9.1 on it must leave the share free, or the engine does not start
(https://github.com/vllm-project/vllm/issues/20305). Changed by https://github.com/vllm-project/vllm/pull/18974 and 19312."""
LOWERED, _TOO_MUCH = 0.4, 0.9
"""What OpenRLHF makes of a share of 0.9 or more when all models share devices, in releases that do (cli/train_ppo_ray.py)."""
SAMPLER_BYTES, MOST_SEQUENCES = 4 + 4 + 8, 1024
"""Bytes of a logit, its sorted value and its index in vLLM's sampler; the default of ``max_num_seqs``
on large devices from 0.8 on."""
SEQUENCES = 256
"""Sequences of the profile run: vLLM's default of ``max_num_seqs`` before 0.8."""
DEFAULT_SHARE = {"vllm": 0.9, "sglang": 0.88}
"""gpu_memory_utilization of vLLM; mem_fraction_static of SGLang is 0.88 on one device (server_args.py)."""
_LARGER_SHARE = ((0, 20), 0.92)
"""From this release of vLLM on (vllm/config/cache.py)."""
_KINDS = ("vllm", "sglang")


class Engine(NamedTuple):
    """An engine on one device."""

    weights: tuple[Component, ...]
    """None where it serves those of the trainer, to which nothing is handed over."""
    cache: tuple[Component, ...]
    """KV pool, graphs, and what a forward of the engine takes."""
    asleep: tuple[Component, ...]
    """While training runs: all of it when it does not sleep."""
    sleeps: bool
    layered: bool = False
    """Weights are summoned layer by layer to hand them over."""
    problem: str | None = None
    """Why it cannot start at all."""

    @property
    def awake(self) -> tuple[Component, ...]:
        """Return what is there while it generates."""
        return (*self.weights, *self.cache)


def price_engine(run: Run, facts: Mapping[str, Fact], beside: Size, habit: Habits) -> Engine | None:
    """Price the engine of a job.

    Returns:
        None when there is none, or Hugging Face's ``generate`` does the work in the training process.
    """

    def get(name: str) -> Value:
        fact = facts.get(name)
        return None if fact is None else fact.value

    kind = str(get("rollout.engine"))
    if kind not in _KINDS:
        return None
    ranks = get("rollout.tensor_parallel") or 1
    ranks = ranks if isinstance(ranks, int) else 1
    shares = get("program.engine_shares_weights") is True  # then it was there before all that is trained
    weights = _weights(run, get("model.stored_quantization"), ranks, of_trainer=shares)
    size, own = weights.size, () if shares else (weights,)
    share, release = get("rollout.gpu_memory_utilization"), run.release(kind)
    is_late = kind == "vllm" and release is not None and release >= _LARGER_SHARE[0]
    usual = _LARGER_SHARE[1] if is_late else DEFAULT_SHARE[kind]
    fraction = float(share) if isinstance(share, float | int) else usual
    stated = "" if isinstance(share, float | int) else ", by default"
    if get("program.lowers_engine_share") and get("rollout.colocated") and fraction >= _TOO_MUCH:
        fraction, stated = LOWERED, ", which OpenRLHF sets with colocate_all_models"
    own_worker = habit.share_of_free
    work = _work(run, ranks) if own_worker else None
    each = bytes_per_token(run.model, DTYPE_BYTES["bfloat16"], tensor_parallel=ranks, compressed=True)
    needed = each * run.sequence
    problem = None
    if run.limit is None:
        pool = _smallest_pool(run, needed)
    else:
        asked = _Share(
            fraction, stated, size.expected, NOTHING if shares else beside, 0 if work is None else work.size.expected
        )
        pool = _own_pool(run.limit, asked) if own_worker else _pool(run.limit, kind, release, asked)
        if pool.size.high < needed and "quantised_engine" not in run.unpriced:
            problem = (
                f"the engine cannot start: its share ({pool.formula}) leaves {format_bytes(pool.size.high)} for the KV pool, "
                f"and one sequence needs {format_bytes(int(needed))}"
            )
    graphs = _graphs(get("rollout.cuda_graphs"), kind, release, own_worker=own_worker)
    sampler = None if own_worker else _sampler(run, kind, release, get("rollout.max_num_seqs"))
    cache = tuple(part for part in (pool, work, graphs, sampler) if part is not None)
    sleeps = habit.always_sleeps or _sleeps(get("rollout.sleep_mode"), get("rollout.free_cache_engine"), habit)
    layered = bool(get("rollout.layered_summon"))
    if own_worker:
        left = () if get("rollout.free_cache_engine") is not False else (pool,)
        return Engine(own, cache, left, sleeps=True, layered=layered, problem=problem)
    process = () if habit.engine_in_process else (
        Component("CUDA context of the engine", "context", CONTEXT, "a process of its own", "pytorch pull 85692", "rollout", ()),
    )  # fmt: skip
    cache = (*cache, *process)
    if not sleeps:
        return Engine(own, cache, (*own, *cache), sleeps=False, layered=layered, problem=problem)
    left = (
        Component("engine, asleep", "other", ASLEEP, "weights on the host, KV given back", "vllm issue 32714", "rollout",
                  ("rollout.sleep_mode", "rollout.free_cache_engine")),
        *((graphs,) if graphs is not None and not habit.graphs_sleep else ()), *process,
    )  # fmt: skip
    return Engine(own, cache, left, sleeps=True, layered=layered, problem=problem)


def _sleeps(mode: Value, frees: Value, habit: Habits) -> bool:
    """Tell whether an engine sleeps between rollouts, by its own setting and by that of the program which started it."""
    return bool(frees) and mode is not False if habit.sleeps_by_cache else bool(mode or frees)


def _weights(run: Run, stored: Value, ranks: int, *, of_trainer: bool) -> Component:
    """Return the weights of an engine, which serves them as they are stored, also where others than those are trained."""
    model, dtype = run.model, min(run.precision.compute, 2.0)
    of_stored = model.quantization if of_trainer else str(stored) if model.quantization is None else None
    quantised = count_quantised(of_stored, model.in_blocks - model.expert, model.expert)
    size = dtype * (model.parameters - quantised)
    words = f"{dtype:g} B × {model.parameters - quantised:,.0f}"
    if quantised:
        each = QUANTISED_BYTES[str(of_stored)]
        size += each * quantised
        words = f"({each:.3f} B × {quantised:,.0f} + {words})"
    facts = ("rollout.tensor_parallel", "model.parameters", *(("model.stored_quantization",) if quantised else ()))
    source = "one copy for each tensor-parallel group"
    return Component(
        "engine weights", "parameters", exactly(size / ranks), f"{words} / {ranks} ranks", source, "rollout", facts
    )


def _is_before(release: tuple[int, ...] | None, other: tuple[int, ...]) -> bool:
    return release is not None and release < other


class _Share(NamedTuple):
    """What an engine asks for."""

    fraction: float
    stated: str
    """Words when nobody said how much."""
    weights: int
    beside: Size
    """What is there when it starts."""
    work: int
    """What a forward of its own takes."""


_POOL_FACTS = ("rollout.gpu_memory_utilization", "hardware.memory_bytes")


def _own_pool(limit: int, asked: _Share) -> Component:
    """Return the pool of verl's own workers: a share of what is free once weights are loaded and a forward has run."""
    free = max(0, limit - asked.weights - asked.beside.expected - CONTEXT.expected - asked.work)
    words = (
        f"{asked.fraction:g} of {free:,} B that are free once weights are loaded and a forward has run{asked.stated}"
    )
    source = "verl/third_party/vllm/vllm_v_0_6_3/worker.py, determine_num_available_blocks"
    return Component("KV pool", "kv_cache", exactly(asked.fraction * free), words, source, "rollout", _POOL_FACTS)


def _pool(limit: int, kind: str, release: tuple[int, ...] | None, asked: _Share) -> Component:
    """Return the pool that a budget leaves, by what the budget is a share of."""
    name = "KV pool and engine activations"
    if kind == "sglang":
        free = max(0, limit - asked.beside.expected)
        words = f"{asked.fraction:g} of {free:,} B that are free at the start, weights taken off{asked.stated}"
        size, source = (
            exactly(max(0.0, asked.fraction * free - asked.weights)),
            "sglang/srt/model_executor/model_runner.py",
        )
        return Component(name, "kv_cache", size, words, source, "rollout", _POOL_FACTS)
    pool = max(0.0, asked.fraction * limit - asked.weights)
    words = f"{asked.fraction:g} of {limit:,} B, weights taken off{asked.stated}"
    lower = max(0.0, pool - asked.beside.expected)
    if release is not None and WHOLE_DEVICE[0] <= release < WHOLE_DEVICE[1]:
        size, words = exactly(lower), f"{words}, and {asked.beside.expected:,} B that were there at the start"
    else:
        size = Size(int(lower if release is None else pool), int(pool), int(pool))
    return Component(
        name,
        "kv_cache",
        size,
        words,
        "vllm/v1/worker/gpu_worker.py, determine_available_memory",
        "rollout",
        _POOL_FACTS,
    )


def _work(run: Run, ranks: int) -> Component:
    """Return what one forward of the engine takes: its widest layer and residuals, float32 logits of every sequence."""
    model = run.model
    each = 2 * (2 * model.intermediate / ranks + 4 * model.hidden)
    count = int(each * run.sequence + 4 * SEQUENCES * model.vocab)
    words = f"{each:,.0f} B × {run.sequence:,} tokens + 4 B × {SEQUENCES} × {model.vocab:,}"
    return Component("engine activations", "workspace", Size(count // 2, count, 2 * count), words, "vLLM profile_run", "rollout",
                     ("model.intermediate_size", "model.vocab_size"))  # fmt: skip


def _sampler(run: Run, kind: str, release: tuple[int, ...] | None, sequences: Value) -> Component | None:
    """Return what vLLM's second engine takes beside its budget when it warms its sampler up with every sequence at once.

    Float32 logits, and a sort of them that makes values and 64-bit indices: the block of 1.74 GiB that
    https://github.com/vllm-project/vllm/issues/15105 fails to get is 12 bytes for each of 1,024 × 152,064 logits (arithmetic; the
    report does not name its vocabulary). Whether the profile has seen it before depends on the release.
    """
    if kind != "vllm" or _is_before(release, WHOLE_DEVICE[0]):
        return None
    count = sequences if isinstance(sequences, int) else MOST_SEQUENCES
    size = SAMPLER_BYTES * count * run.model.vocab
    words = f"at most {SAMPLER_BYTES} B × {count:,} sequences × {run.model.vocab:,}, where the profile left it out"
    return Component("sampler's warm-up", "workspace", Size(0, 0, size), words, "vllm issue 15105", "rollout",
                     ("rollout.max_num_seqs",))  # fmt: skip


def _graphs(wanted: Value, kind: str, release: tuple[int, ...] | None, *, own_worker: bool) -> Component | None:
    inside = kind == "vllm" and release is not None and release >= GRAPHS_IN_BUDGET
    if wanted is False or own_worker or inside:
        return None
    return Component("CUDA graphs of the engine", "workspace", GRAPHS[kind], "captured beside the budget", "sglang pull 8538",
                     "rollout", ("rollout.enforce_eager",))  # fmt: skip


def _smallest_pool(run: Run, needed: float) -> Component:
    """Return the cache of one sequence: the least an engine starts with, where the device is not known."""
    words = f"{needed / run.sequence:,.0f} B × {run.sequence:,} tokens of one sequence; its share of the device is not known"
    facts = ("training.sequence_length", "model.num_key_value_heads")
    size = exactly(needed) if needed else NOTHING
    return Component("KV pool, at least", "kv_cache", size, words, "arXiv 2309.06180", "rollout", facts)
