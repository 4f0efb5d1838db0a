"""A server that only generates: what its weights leave of its share for keys and values, and how many tokens that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Capacity, Component, Estimate, Phase, Size, Unmodelled, Verdict, exactly, total
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import MIB, format_bytes
from compatcheck.memory.asked_facts import Given
from compatcheck.memory.closed_form.context import CONTEXT
from compatcheck.memory.closed_form.kv_cache import bytes_per_token
from compatcheck.memory.closed_form.parameters import QUANTISED_BYTES, count_quantised
from compatcheck.memory.closed_form.verdict import REPORTED, judge
from compatcheck.memory.deciding_component import explain
from compatcheck.memory.engine import DEFAULT_SHARE, GRAPHS, GRAPHS_IN_BUDGET
from compatcheck.memory.read_run import read_model, read_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Facts
    from compatcheck.memory.run import Model

    Parts = tuple[Component, ...]

SAMPLER_BYTES = (14, 39)
"""Bytes that vLLM's sampler takes for each logit of its profile run, from 0.17 on and before: 16-bit and float32 logits,
probabilities and random numbers; sorted copies with 64-bit indices. Measured on one H100 with 1,024 sequences: 5.64 GiB at 0.15.0
and 0.16.0, 2.23 at 0.17.0 and 0.18.0 for 151,936 words, and 26 models of 32,000 to 262,144 words at 0.19.0
(https://github.com/llm-d-incubation/llm-d-planner/pull/205, accuracy_report.md)."""
SAMPLER_REST = 192_000_000
"""What the same profile holds beside it from 0.17 on, whatever the model (fitted to those runs)."""
NEW_SAMPLER = (0, 17)
_EVERY_RANK = (0, 8)
"""The first engine samples on one of the ranks alone."""
OUTSIDE_TORCH = Size(137_000_000, 264_000_000, 1_920_000_000)
"""What an engine holds outside of torch after its start on one rank: 0.13 to 0.25 GiB on H100 (the same report), 1.79 in 0.6.5
(https://github.com/vllm-project/vllm/pull/10511)."""
OF_RANKS = {True: Size(215_000_000, 2_230_000_000, 3_840_000_000), False: Size(137_000_000, 420_000_000, 2_230_000_000)}
"""The same on several ranks, joined by NVLink or not: 2.07 to 2.17 GiB on H100s (the report), 3.58 in 0.6.5; 0.25 on two RTX 4090
(https://github.com/vllm-project/vllm/issues/13061), 0.39 on two devices (https://github.com/vllm-project/vllm/issues/11251)."""
SGLANG_SHARES = (0.79, 0.85, 0.88)
"""What mem_fraction_static comes to where nobody states it, by memory and ranks (0.4.6 and 0.5.5 sglang/srt/server_args.py)."""
TOWERS = Size(0, 256 * MIB, 640 * MIB)
"""What images and audio add to the profile run: 0.1 to 0.5 GiB in that report."""
_TOKENS, _SEQUENCES = Size(2048, 8192, 16384), Size(256, 256, 1024)
"""Defaults of ``max_num_batched_tokens`` and ``max_num_seqs`` over releases and devices (vllm/engine/arg_utils.py)."""
_LABELS = {"vllm": "vLLM", "sglang": "SGLang"}
_LENGTH = "rollout.max_model_len"


class _Server(NamedTuple):
    """An engine by itself, on one device."""

    kind: str
    model: Model
    release: tuple[int, ...] | None
    tensor: int
    pipeline: int
    replicas: int
    dtype: float
    """Bytes of an unquantised weight."""
    cache_dtype: float
    """Bytes of a key or value."""
    length: int
    fitted: bool
    """The engine chooses the length that fits."""
    window: int
    """Tokens that layers with a sliding window keep; 0 where no layer has one."""
    tokens: Size
    sequences: Size

    @property
    def least(self) -> int:
        """Tokens that one sequence keeps at least: of a model with sliding windows, all layers may have one."""
        return min(self.length, self.window) if self.window else self.length

    def split(self, count: float) -> float:
        """Return one rank's share of parameters in blocks."""
        layers = self.model.layers
        return count * -(-layers // self.pipeline) / layers / self.tensor


def serves(facts: Facts) -> bool:
    """Tell whether a run is a server that trains nothing."""
    fact = facts.get("program.serves")
    return fact is not None and bool(fact.value)


def estimate_server(facts: Facts, environment: Environment | None = None) -> Estimate:
    """Estimate what one device of an inference server holds, and what it can serve.

    Returns:
        Phases ``load``, ``profile`` and ``rollout`` with the `Capacity` of its cache; without phases, `needs` names what is
        missing.

    Raises:
        UsageError: a size is zero, negative or beyond 2**63 - 1.
    """
    source = Given(facts)
    server = _read(source, environment)
    if server.kind not in _LABELS:
        source.needs.append("rollout.engine")
    if source.needs:
        needs = tuple(dict.fromkeys(source.needs))
        return Estimate("closed_form", (), judge((), None), tuple(source.assumptions.values()), (), needs)
    share = source.get("rollout.gpu_memory_utilization")
    if isinstance(share, int | float) and not 0 < share <= 1:
        return Estimate(
            "closed_form", (), Verdict("unknown", None, None, f"{share:g} is no share of a device: above 0, up to 1")
        )
    weights, work = tuple(_weights(server)), tuple(_work(server))
    joined = source.get("hardware.nvlink") is not False
    outside = OUTSIDE_TORCH if server.tensor == 1 else OF_RANKS[joined]
    lasting = (
        Component("CUDA context", "context", CONTEXT, "kernels are loaded as they are used", "pytorch pull 85692"),
        Component("NCCL and other libraries", "other", outside, f"{server.tensor} tensor-parallel ranks",
                  "vLLM's own figures: llm-d-planner pull 205, vllm pull 10511", facts=("rollout.tensor_parallel",)),
    )  # fmt: skip
    graphs = _graphs(source, server)
    limit = source.integer("hardware.memory_bytes", 0) or None
    inside = weights
    if server.kind == "vllm":
        inside = (*weights, *work, lasting[1], *(graphs if _counts_graphs(server) else ()))
    each = bytes_per_token(
        server.model,
        server.cache_dtype,
        tensor_parallel=server.tensor,
        pipeline_parallel=server.pipeline,
        compressed=True,
    )
    pool = _pool(source, server, limit, inside, lasting[1], each)
    capacity = Capacity(Size(*(int(bound / each) for bound in pool.size)), None if server.fitted else server.length)
    phases = (
        Phase("load", "train", (*weights, *lasting)),
        Phase("profile", "train", (*weights, *work, *lasting)),
        Phase("rollout", "train", _serve(server, pool, limit, inside, (*weights, *work, *graphs, *lasting), each)),
    )
    unmodelled = tuple(_unmodelled(source, server))
    verdict = explain(judge(phases, limit), phases, {}, unmodelled)._replace(verify=None)
    assumptions = tuple(source.assumptions.values())
    known = None if limit is None else capacity
    return Estimate("closed_form", phases, verdict, assumptions, unmodelled, capacity=known)


def describe_server(facts: Facts) -> str:
    """Return what a server does, in words: ``served by vLLM, up to 32,768 tokens``."""
    kind, length = facts.get("rollout.engine"), facts.get(_LENGTH)
    text = f"served by {_LABELS.get(str(kind.value), str(kind.value))}" if kind is not None else "served"
    return f"{text}, up to {length.value:,} tokens" if length is not None and isinstance(length.value, int) else text


def _read(source: Given, environment: Environment | None) -> _Server:
    kind = str(source.get("rollout.engine"))
    model = read_model(source, {})
    source.assumptions.pop("model.attn_implementation", None)  # the engine's own kernels
    positions = source.integer("model.max_position_embeddings", 0)
    fitted = source.knows(_LENGTH) and source.get(_LENGTH) is None
    length = positions if fitted else source.positive(_LENGTH, positions or None, "what the model was built for")
    stored = source.dtype("model.load_dtype")
    dtype = stored if stored is not None else 2.0
    cache = str(source.get("rollout.kv_cache_dtype") or "auto")
    tokens, sequences = source.integer("rollout.max_num_batched_tokens", 0), source.integer("rollout.max_num_seqs", 0)
    return _Server(
        kind=kind,
        model=model,
        release=read_versions(environment).get(kind),
        tensor=source.positive("rollout.tensor_parallel", 1),
        pipeline=source.positive("rollout.pipeline_parallel", 1),
        replicas=source.positive("rollout.data_parallel", 1),
        dtype=dtype,
        cache_dtype=1.0 if cache.startswith("fp8") or cache == "int8" else dtype,
        length=max(1, length),
        fitted=fitted,
        window=source.integer("model.sliding_window", 0),
        tokens=exactly(tokens) if tokens else _TOKENS,
        sequences=exactly(sequences) if sequences else _SEQUENCES,
    )


def _weights(server: _Server) -> Iterator[Component]:
    """Return the weights of the fullest stage: its blocks, and the larger one of embedding and head; one stage has both."""
    model = server.model
    dense, experts = server.split(model.in_blocks - model.expert), server.split(model.expert / server.replicas)
    ends = model.embedding + model.lm_head if server.pipeline == 1 else max(model.embedding, model.lm_head)
    rest = (ends + model.other + model.vision) / server.tensor
    ranks = f" / {server.tensor} ranks" if server.tensor > 1 else ""
    stage = f", one of {server.pipeline} stages" if server.pipeline > 1 else ""
    facts = ("model.parameters", "rollout.tensor_parallel", "rollout.pipeline_parallel")
    quantised = count_quantised(model.quantization, dense, experts)
    if quantised:
        each = QUANTISED_BYTES[str(model.quantization)]
        rest += dense + experts - quantised
        words = f"{each:.3f} B × {quantised * server.tensor:,.0f}{ranks}{stage}"
        yield Component("quantised weights", "parameters", exactly(each * quantised), words, "bytes of a weight with its scales",
                        facts=("model.quantization", *facts))  # fmt: skip
        words = f"{server.dtype:g} B × {rest * server.tensor:,.0f}{ranks}, the others"
        yield Component("weights", "parameters", exactly(server.dtype * rest), words, "not quantised", facts=facts)
        return
    words = f"{server.dtype:g} B × {model.parameters:,}{ranks}{stage}"
    size = exactly(server.dtype * (dense + experts + rest))
    yield Component("weights", "parameters", size, words, "vLLM's own figures: llm-d-planner pull 205", facts=facts)


def _work(server: _Server) -> Iterator[Component]:
    """Return what a forward of the most tokens takes, or sampling for the most sequences: what the profile of vLLM sees.

    SGLang computes logits of one position for each sequence, and takes what it needs from what its share leaves free.
    """
    model = server.model
    routed = model.experts_per_token * model.expert_width / server.tensor if model.experts else 0.0
    width = 3 * model.intermediate / server.tensor if not model.experts else 0.0
    each = 2 * (width + 4 * model.hidden)
    forward = Size(*(int(each * count) for count in server.tokens))
    low, expected, high = _bytes_per_logit(server)
    rows = server.sequences
    sampler = Size(
        *(int(bound * count * model.vocab) for bound, count in zip((low, expected, high), rows, strict=True))
    )
    if expected == SAMPLER_BYTES[0]:
        sampler += Size(0, SAMPLER_REST, SAMPLER_REST)
    words = f"{expected} B × {rows.expected:,} sequences × {model.vocab:,}"
    if forward.expected > sampler.expected:
        words = f"{each:,.0f} B × {server.tokens.expected:,} tokens"
    size = Size(*(max(pair) for pair in zip(forward, sampler, strict=True)))
    facts = ("rollout.max_num_seqs", "rollout.max_num_batched_tokens", "model.vocab_size")
    yield Component("forward and sampling", "workspace", size, words, "vllm/v1/worker/gpu_model_runner.py profile_run",
                    facts=facts)  # fmt: skip
    if routed:
        wide = max(2 * model.expert_width / server.tensor, model.hidden) + model.expert_width / server.tensor
        each = 2 * model.experts_per_token * wide
        size = Size(*(int(each * count) for count in server.tokens))
        yield Component("workspace of experts", "workspace", size, f"{each:,.0f} B × {server.tokens.expected:,} tokens",
                        "vllm fused_moe: two intermediate caches", facts=("model.num_experts_per_token",))  # fmt: skip
    if model.vision:
        yield Component("images and audio", "workspace", TOWERS, "the largest item of the profile run",
                        "vLLM's own figures: llm-d-planner pull 205", facts=("model.vision_parameters",))  # fmt: skip


def _bytes_per_logit(server: _Server) -> tuple[int, int, int]:
    """Return bytes that sampling takes for each logit: of SGLang a float32 copy and its probabilities, and as much again."""
    new, old = SAMPLER_BYTES
    if server.kind != "vllm":
        return 0, 8, 16
    release = server.release
    if release is None:
        return 0 if server.tensor > 1 else new, new, old
    each = old if release < NEW_SAMPLER else new
    return 0 if server.tensor > 1 and release < _EVERY_RANK else each, each, each


def _graphs(source: Given, server: _Server) -> Parts:
    if source.get("rollout.cuda_graphs") is False or source.get("rollout.enforce_eager") is True:
        return ()
    inside = _counts_graphs(server)
    words = "a part of its share" if inside else "captured beside its share"
    return (
        Component("CUDA graphs of the engine", "workspace", GRAPHS[server.kind], words, "sglang pull 8538",
                  facts=("rollout.enforce_eager",)),
    )  # fmt: skip


def _counts_graphs(server: _Server) -> bool:
    return server.kind == "vllm" and server.release is not None and server.release >= GRAPHS_IN_BUDGET


def _pool(
    source: Given, server: _Server, limit: int | None, inside: Parts, outside: Component, each: float
) -> Component:
    """Return the cache: what its share of the device leaves of it; the least that it starts with where no device is known.

    Args:
        source: of its settings.
        server: the engine.
        limit: memory of the device.
        inside: what else the share has to hold.
        outside: what libraries hold.
        each: bytes of one token.
    """
    facts = ("rollout.gpu_memory_utilization", "hardware.memory_bytes")
    stated = source.integer("rollout.kv_cache_bytes", 0)
    if stated:
        return Component("KV cache", "kv_cache", exactly(stated), "as stated", "vllm/v1/worker/gpu_worker.py",
                         facts=("rollout.kv_cache_bytes",))  # fmt: skip
    if limit is None:
        words = f"{each:,.0f} B × {server.length:,} tokens of one sequence"
        return Component("KV cache, at least", "kv_cache", exactly(each * server.length), words, "arXiv 2309.06180")
    share = source.get("rollout.gpu_memory_utilization")
    if isinstance(share, int | float):
        shares = (float(share),) * 3
    else:
        shares = SGLANG_SHARES if server.kind == "sglang" else (DEFAULT_SHARE["vllm"],) * 3
        source.assume("rollout.gpu_memory_utilization", shares[1], "what the engine takes where nobody says")
    low, expected, high = (sum(bounds) for bounds in zip(*(part.size for part in inside), strict=True))
    taken, memory = (high, expected, low), [part * limit for part in REPORTED]
    if server.kind == "sglang":  # a share of what is free once its libraries are there
        memory = [one - CONTEXT.expected - outside.size.expected for one in memory]
    size = Size(*(max(0, int(a * b - c)) for a, b, c in zip(shares, memory, taken, strict=True)))
    words = f"{shares[1]:g} of {int(memory[1]):,} B, less {expected:,} B for the rest of its share"
    path = "sglang/srt/model_executor/model_runner.py" if server.kind == "sglang" else "vllm/v1/worker/gpu_worker.py"
    return Component("KV cache", "kv_cache", size, words, path, facts=facts)


def _serve(server: _Server, pool: Component, limit: int | None, inside: Parts, parts: Parts, each: float) -> Parts:
    """Return all that is there while it serves: what the rest of a share takes, the cache does not get.

    The engine starts where the cache holds one sequence (vllm/v1/core/kv_cache_utils.py). One that does not start needs what the
    sequence has too little, beside what its share leaves free.
    """
    spread, (low, expected, high) = total(part.size for part in inside), pool.size
    pinned = tuple(part._replace(size=exactly(part.size.expected)) if part in inside else part for part in parts)
    bounds = Size(low + spread.high - spread.expected, expected, high - spread.expected + spread.low)
    cache = pool._replace(size=Size(min(bounds.low, expected), expected, max(expected, bounds.high)))
    needed = 1 if server.fitted else int(each * server.least)
    if limit is None or low >= needed:
        return (*pinned, cache)
    free = max(0, limit - total(part.size for part in (*pinned, cache)).expected)
    if expected >= needed:
        return (*pinned, cache._replace(size=cache.size._replace(high=expected + free + needed - low)))
    words = f"{each:,.0f} B × {server.least:,} tokens of one sequence; its share leaves {format_bytes(expected)} ({pool.formula})"
    size = Size(max(0, needed + expected - high), needed, needed + expected - low)
    one = cache._replace(name="KV cache of one sequence", size=size, formula=words)
    rest = Component("what its share leaves free", "other", exactly(free), "the rest of the device", pool.source,
                     facts=("rollout.gpu_memory_utilization",))  # fmt: skip
    return (*(part._replace(size=exactly(part.size.expected)) for part in pinned), rest, one)


def _unmodelled(source: Given, server: _Server) -> Iterator[Unmodelled]:
    if server.window:
        reason = "they keep a window of each sequence, and all layers are taken to keep all of it"
        yield Unmodelled("layers with a sliding window", "less", reason)
    if source.knows("rollout.speculation"):
        yield Unmodelled("speculative decoding", "more", "a draft model and its cache, whose sizes nobody read")
    if source.get("rollout.adapters"):
        yield Unmodelled("adapters", "more", "room for as many LoRA adapters as are served at once")
