"""What to change after a message: what its numbers ask for, settings its tensor grows with, suggestions of the estimate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compatcheck.checking.verdict import Variants, judge
from compatcheck.core.effects import MORE_HARDWARE
from compatcheck.core.out_of_memory import Relief
from compatcheck.oom.budget import is_worth_joining
from compatcheck.oom.candidates import BUDGETS
from compatcheck.resolution.resolve import resolve_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.checking.checks import Criteria
    from compatcheck.core.facts import Fact
    from compatcheck.core.out_of_memory import Message, MessageReading
    from compatcheck.core.suggestions import Suggestion
    from compatcheck.frameworks.lines import LineFinder
    from compatcheck.resolution.subject import Subject

_MOST = 3
"""Suggestions of the estimate that are shown."""
_VARIABLES = {"CUDA": "PYTORCH_CUDA_ALLOC_CONF", "HIP": "PYTORCH_HIP_ALLOC_CONF", "NPU": "PYTORCH_NPU_ALLOC_CONF"}
_SETTINGS = ("training.", "rollout.")
_FITTED = {"hardware.world_size", "training.tensor_parallel", "training.context_parallel", "training.expert_parallel"}
"""Settings that divide a tensor, which grows when they are lowered."""
_BATCH = ("training.micro_batch_size", "training.sequence_length")
_NEEDY = {"need", "nearly_full", "fragmentation", "unclear"}

_LEAST_SHARE = 0.2
"""Share of a device below which no engine is worth starting."""
_WAKES = {
    "vllm-cumem": "lower gpu_memory_utilization of the engine",
    "torch-memory-saver": "lower --mem-fraction-static of the engine",
}
"""Forms of what wakes up beside a trainer, and what to do about the engine's share of the device, by its own name."""
_ON_HOST = (
    "training.offload_param",
    "training.fsdp_offload_params",
    "training.offload_optimizer",
    "training.activation_offloading",
)


def find_relief(facts: Mapping[str, Fact], reading: MessageReading | None, lines: LineFinder) -> tuple[Relief, ...]:
    """Find what the numbers of a message ask for, and the settings that its tensor grows with.

    Args:
        facts: of the run, with what the log says itself.
        reading: the message that explains the failure, None without one.
        lines: finds the lines of settings.
    """
    if reading is None:
        return ()
    if reading.message.memory == "host":
        return tuple(_from_host(facts, lines))
    if reading.message.memory != "device":
        return ()
    return (
        *_from_form(facts, reading.message, lines),
        *_from_cause(facts, reading),
        *_from_tensor(facts, reading, lines),
    )


def _from_form(facts: Mapping[str, Fact], message: Message, lines: LineFinder) -> Iterator[Relief]:
    """Yield what helps against the messages of engines and of libraries outside the caching allocator."""
    details = dict(message.details)
    if message.form == "vllm-utilization":
        share = float(details["free_gib"]) / float(details["total_gib"])
        if share >= _LEAST_SHARE:
            yield Relief(
                f"lower gpu_memory_utilization to {math.floor(100 * share) / 100:.2f}: {share:.1%} of the device were free"
            )
        yield Relief("free the device: nvidia-smi lists what holds it")
    elif message.form == "vllm-sampler":
        yield Relief(f"lower max_num_seqs, {details['requests']} now")
    elif message.form == "vllm-kv-cache":
        longest = details.get("estimated_max_model_len")
        yield Relief(f"lower max_model_len{f' to {longest}' if longest else ''}, or raise gpu_memory_utilization")
    elif message.form in {"vllm-no-blocks", "vllm-ledger"}:
        yield Relief("raise gpu_memory_utilization, where nothing else needs the device")
        yield Relief("less of the weights on a device: a larger tensor_parallel_size, or a quantised checkpoint")
        yield Relief("lower max_num_batched_tokens and max_num_seqs, which the profiled forward pass grows with")
    elif message.form == "sglang-kv-cache":
        yield Relief("raise --mem-fraction-static, where nothing else needs the device")
        yield Relief("less of the weights on a device: a larger --tp-size, or a quantised checkpoint")
    elif message.form in _WAKES:
        yield from _lower_share(facts, _WAKES[message.form], lines)
        yield Relief(
            "what trains must give its memory back before the engine wakes up: offload, torch.cuda.empty_cache()"
        )
    elif message.form in {"nccl", "cublas", "cuda-error", "triton-cuda"}:
        yield Relief(
            "leave more of the device to what is outside PyTorch's allocator: a smaller micro batch, shorter sequences"
        )


def _lower_share(facts: Mapping[str, Fact], words: str, lines: LineFinder) -> Iterator[Relief]:
    share = facts.get("rollout.gpu_memory_utilization")
    if share is None:
        yield Relief(words)
    else:
        source = share.sources[0] if share.sources else None
        yield Relief(f"lower {share.name}, {share.value} now", None if source is None else lines.with_line(source))


def _from_host(facts: Mapping[str, Fact], lines: LineFinder) -> Iterator[Relief]:
    """Yield what holds memory of the host, as the person wrote it."""
    for name in _ON_HOST:
        fact = facts.get(name)
        if fact is not None and fact.value not in {None, False, "none"}:
            source = fact.sources[0] if fact.sources else None
            yield Relief(f"keep it off the host: {name}", None if source is None else lines.with_line(source))
    yield Relief(
        "fewer processes and data-loader workers on the host, less offloaded to it, or a host with more memory"
    )


_EXPANDS = ("allocator.expandable_segments", "program.trains_with_expandable_segments")


def _from_cause(facts: Mapping[str, Fact], reading: MessageReading) -> Iterator[Relief]:
    cause = None if reading.budget is None else reading.budget.cause
    variable = _VARIABLES.get(reading.message.allocator.partition(" or ")[0])
    expandable = any(name in facts and facts[name].value for name in _EXPANDS)
    pieces = cause in {"fragmentation", "nearly_full"} and is_worth_joining(reading.message)
    if pieces and variable and not expandable:
        engine, sleeps = facts.get("rollout.engine"), facts.get("rollout.sleep_mode")
        shared = engine is not None and engine.value == "vllm" and (sleeps is None or sleeps.value)
        but = "; not in a process that holds vLLM with its sleep mode, which refuses it" if shared else ""
        yield Relief(f"{variable}=expandable_segments:True, which joins what is free and unused{but}")
    if cause in {"other_processes", "foreign_memory"}:
        yield Relief("free the device: nvidia-smi lists what holds it")
    if cause == "memory_limit":
        yield Relief("raise torch.cuda.set_per_process_memory_fraction, which sets the limit")


def _from_tensor(facts: Mapping[str, Fact], reading: MessageReading, lines: LineFinder) -> Iterator[Relief]:
    """Yield the settings that the tensor grows with, as the person wrote them."""
    if reading.outcome not in {"named", "tied"}:
        return
    names = dict.fromkeys(
        name
        for match in reading.matches
        for name in match.facts
        if name.startswith(_SETTINGS) and name not in _FITTED and not name.endswith(("trainer", "zero_stage"))
    )
    solved = any("token" in words or "length" in words for match in reading.matches for words in match.inferred)
    contradicted = all(name in facts for name in _BATCH)  # or the size would be that of their product
    if solved and not names and not contradicted:  # what is stated bounds the tokens
        names = dict.fromkeys(BUDGETS if any(name in facts for name in BUDGETS) else _BATCH)
    lowered = False
    for name in names:
        fact = facts.get(name)
        if fact is None or not isinstance(fact.value, int) or fact.value <= 1:
            continue
        source = fact.sources[0] if fact.sources else None
        yield Relief(f"lower {name}, {fact.value:,} now", None if source is None else lines.with_line(source))
        lowered = True
    if solved and not lowered:
        stated = "the inputs state other numbers" if contradicted else "no input states either"
        yield Relief(f"fewer sequences in a micro batch, or shorter ones: {stated}")


def suggest_changes(
    subject: Subject, facts: Mapping[str, Fact], reading: MessageReading | None, criteria: Criteria, *, of_engine: bool
) -> tuple[Suggestion, ...]:
    """Return what `estimate --suggest` suggests for a run on the device that a message tells of, more hardware apart.

    Of a message ``of_engine`` that serves, what changes the engine alone.
    """
    if reading is None or reading.message.memory != "device" or (reading.place and reading.place.phase == "load"):
        return ()
    if reading.budget is not None and reading.budget.cause not in _NEEDY:
        return ()
    stated = {
        name: fact.value for name, fact in facts.items() if not any(name in role for role in subject.roles.values())
    }
    if "hardware.memory_bytes" not in facts and reading.message.total is not None:
        total = reading.message.total
        stated["hardware.memory_bytes"] = (total.low_bytes + total.high_bytes) // 2
    subject = resolve_with(subject, stated, criteria.rules)
    estimate = judge(subject, criteria).estimate
    if estimate is None or not estimate.phases:
        return ()
    from compatcheck.fixing.suggestions import suggest  # noqa: PLC0415 (only where a run is described)

    fails = estimate.verdict.outcome in {"does_not_fit", "marginal"}
    suggestions = suggest(subject, criteria.rules, Variants(criteria))
    cheap = [
        one
        for one in suggestions
        if one.effect != MORE_HARDWARE
        and (not of_engine or all(change.name.startswith("rollout.") for change in one.changes))
    ]
    return tuple(one if fails else one._replace(outcome="unknown") for one in cheap[:_MOST])
