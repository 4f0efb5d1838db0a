"""What a generation engine holds on a device: weights, KV pool, graphs, and what is left of it while it sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.estimate import Component, Size, Unmodelled, exactly
from compatcheck.core.units import DTYPE_BYTES, GIB
from compatcheck.memory.closed_form.kv_cache import bytes_per_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Fact, Value
    from compatcheck.memory.run import Run

GRAPHS = Size(0, 2 * GIB, 6 * GIB)
"""CUDA graphs, which the budget of vLLM before 0.20 leaves out. 1.40 GB (vLLM 0.9.2) and 6.19 GB (SGLang) for one model:
https://github.com/sgl-project/sglang/pull/8538; expected: between them."""
ASLEEP = Size(0, 1 * GIB, 3 * GIB)
"""What an engine that sleeps leaves behind: 1.14 GB on vLLM 0.13, https://github.com/vllm-project/vllm/issues/32714."""
SHARE_OF_FREE = frozenset({"search-r1", "logic-rl", "tinyzero"})
"""Programs whose engine takes its share of what is free once the weights are loaded, for KV alone: verl before 0.3 with its own
workers for vLLM up to 0.6.3 (verl/third_party/vllm/vllm_v_0_6_3/worker.py, determine_num_available_blocks)."""
_DEFAULT_SHARE = {"vllm": 0.9, "sglang": 0.88}
"""gpu_memory_utilization of vLLM; mem_fraction_static of SGLang is 0.88 on one device (server_args.py)."""


class Engine(NamedTuple):
    """An engine on one device, awake and asleep."""

    awake: tuple[Component, ...]
    asleep: tuple[Component, ...]
    """While training runs: the same when it does not sleep."""
    unmodelled: tuple[Unmodelled, ...] = ()


def price_engine(run: Run, facts: Mapping[str, Fact], beside: int) -> Engine | None:
    """Price the engine of a job.

    Args:
        run: of the model that generates.
        facts: its facts, ``rollout.*`` among them.
        beside: bytes that are on the device when the engine starts, for engines that take a share of what is free.

    Returns:
        None when there is none, or Hugging Face's ``generate`` does the work in the training process.
    """

    def get(name: str) -> Value:
        fact = facts.get(name)
        return None if fact is None else fact.value

    kind = get("rollout.engine")
    if kind not in {"vllm", "sglang"}:
        return None
    ranks = get("rollout.tensor_parallel") or 1
    ranks = ranks if isinstance(ranks, int) else 1
    dtype = 2.0 if run.precision.compute > 2 else run.precision.compute
    weights = exactly(dtype * run.model.parameters / ranks)
    share = get("rollout.gpu_memory_utilization")
    stated = isinstance(share, float | int)
    fraction = float(share) if isinstance(share, float | int) else _DEFAULT_SHARE[str(kind)]
    parts = [
        Component(
            "engine weights", "parameters", weights, f"{dtype:g} B × {run.model.parameters:,} / {ranks} ranks",
            "one copy for each tensor-parallel group", "rollout", ("rollout.tensor_parallel", "model.parameters"),
        )
    ]  # fmt: skip
    framework = str(get("training.framework") or "")
    if run.limit is not None:
        parts.append(_pool(run, framework, fraction, weights.expected, beside, stated=stated))
    else:
        parts.append(_smallest_pool(run, ranks))
    graphs = get("rollout.cuda_graphs")
    if graphs is not False and framework not in SHARE_OF_FREE:
        parts.append(
            Component("CUDA graphs of the engine", "workspace", GRAPHS, "captured beside the budget", "sglang pull 8538",
                      "rollout", ("rollout.enforce_eager",))
        )  # fmt: skip
    sleeps = bool(get("rollout.sleep_mode") or get("rollout.free_cache_engine"))
    left = Component("engine, asleep", "other", ASLEEP, "weights on the host, KV given back", "vllm issue 32714", "rollout",
                     ("rollout.sleep_mode", "rollout.free_cache_engine"))  # fmt: skip
    if framework in SHARE_OF_FREE and sleeps:
        return Engine(tuple(parts), ())
    return Engine(tuple(parts), (left,) if sleeps else tuple(parts))


def _pool(run: Run, framework: str, fraction: float, weights: int, beside: int, *, stated: bool) -> Component:
    assert run.limit is not None  # noqa: S101 (the caller looked)
    words = "" if stated else ", by default"
    if framework in SHARE_OF_FREE:
        free = max(0, run.limit - beside - weights)
        size = exactly(fraction * free)
        words = f"{fraction:g} of {free:,} B that are free{words}"
        source = "verl/third_party/vllm/vllm_v_0_6_3/worker.py"
    else:
        budget = int(fraction * run.limit)
        size = exactly(max(0, budget - weights))
        words = f"{fraction:g} of {run.limit:,} B, weights taken off{words}"
        source = "vllm/v1/worker/gpu_worker.py, determine_available_memory"
    facts = ("rollout.gpu_memory_utilization", "hardware.memory_bytes")
    return Component("KV pool and engine activations", "kv_cache", size, words, source, "rollout", facts)


def _smallest_pool(run: Run, ranks: int) -> Component:
    """Return the cache of one sequence: the least an engine starts with, where the device is not known."""
    each = bytes_per_token(run.model, DTYPE_BYTES["bfloat16"], tensor_parallel=ranks)
    words = f"{each:,.0f} B × {run.sequence:,} tokens of one sequence; its share of the device is not known"
    facts = ("training.sequence_length", "model.num_key_value_heads")
    return Component(
        "KV pool, at least", "kv_cache", exactly(each * run.sequence), words, "arXiv 2309.06180", "rollout", facts
    )
