"""What to change after a message: what its numbers ask for, settings its tensor grows with, suggestions of the estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.fit import price
from compatcheck.core.errors import UsageError
from compatcheck.core.facts import Fact, Facts
from compatcheck.core.out_of_memory import Relief

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.out_of_memory import MessageReading
    from compatcheck.core.suggestions import Suggestion
    from compatcheck.frameworks.lines import LineFinder
    from compatcheck.resolution.subject import Subject

_MOST = 3
"""Suggestions of the estimate that are shown."""
_VARIABLES = {"CUDA": "PYTORCH_CUDA_ALLOC_CONF", "HIP": "PYTORCH_HIP_ALLOC_CONF", "NPU": "PYTORCH_NPU_ALLOC_CONF"}
_SETTINGS = ("training.", "rollout.")
_FITTED = {"hardware.world_size", "training.tensor_parallel", "training.context_parallel", "training.expert_parallel"}
"""Settings that divide a tensor, which grows when they are lowered."""
_NEEDY = {"need", "nearly_full", "fragmentation", "unclear"}


def find_relief(
    subject: Subject, facts: Mapping[str, Fact], reading: MessageReading | None, lines: LineFinder
) -> tuple[Relief, ...]:
    """Find what to change, the surest first.

    Args:
        subject: the run.
        facts: its facts, with what the log says itself.
        reading: the message that explains the failure, None without one.
        lines: finds the lines of settings.
    """
    if reading is None or reading.message.memory != "device":
        return ()
    return (
        *_from_cause(facts, reading),
        *_from_tensor(facts, reading, lines),
        *_from_estimate(subject, facts, reading),
    )


def _from_cause(facts: Mapping[str, Fact], reading: MessageReading) -> Iterator[Relief]:
    cause = None if reading.budget is None else reading.budget.cause
    variable = _VARIABLES.get(reading.message.allocator.partition(" or ")[0])
    expandable = facts.get("allocator.expandable_segments")
    if cause in {"fragmentation", "nearly_full"} and variable and (expandable is None or not expandable.value):
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
    for name in names:
        fact = facts.get(name)
        if fact is None or not isinstance(fact.value, int) or fact.value <= 1:
            continue
        source = fact.sources[0] if fact.sources else None
        yield Relief(f"lower {name}, {fact.value:,} now", None if source is None else lines.with_line(source))
    solved = any("token" in words or "length" in words for match in reading.matches for words in match.inferred)
    if solved and not names:
        yield Relief("fewer sequences in a micro batch, or shorter ones: no input states either")


def _from_estimate(subject: Subject, facts: Mapping[str, Fact], reading: MessageReading) -> Iterator[Relief]:
    """Yield what the estimate suggests for this run on the device that the message tells of."""
    cause = None if reading.budget is None else reading.budget.cause
    if (cause is not None and cause not in _NEEDY) or (reading.place is not None and reading.place.phase == "load"):
        return
    roles = dict(subject.roles)
    first = next(iter(roles), None)
    if first is None:
        return
    added = {name: fact for name, fact in facts.items() if not any(name in known for known in roles.values())}
    if "hardware.memory_bytes" not in facts and reading.message.total is not None:
        total = reading.message.total
        size = (total.low_bytes + total.high_bytes) // 2
        added["hardware.memory_bytes"] = Fact("hardware.memory_bytes", size, "reported", note="as the message says")
    roles[first] = Facts({**roles[first], **added})
    try:
        before, suggestions = _suggest(subject._replace(roles=roles))
    except UsageError:  # a size that makes no sense, which `estimate` would say
        return
    cheap = [suggestion for suggestion in suggestions if not _buys_hardware(suggestion)]
    for suggestion in cheap[:_MOST]:
        words = " + ".join(change.words for change in suggestion.changes)
        outcome = suggestion.outcome if before.verdict.outcome in {"does_not_fit", "marginal"} else None
        yield Relief(f"{words} ({suggestion.effect})", None, suggestion.saved_bytes, outcome)


def _buys_hardware(suggestion: Suggestion) -> bool:
    return any(name.startswith("hardware.") for change in suggestion.changes for name in change.facts)


def _suggest(subject: Subject) -> tuple[Estimate, tuple[Suggestion, ...]]:
    from compatcheck.memory.job import estimate_job  # noqa: PLC0415 (only where a run is described)
    from compatcheck.memory.suggest import suggest  # noqa: PLC0415 (as above)

    before = price(subject)
    if not before.phases:
        return before, ()
    return before, suggest(subject.roles, lambda roles: estimate_job(roles, subject.environment))
