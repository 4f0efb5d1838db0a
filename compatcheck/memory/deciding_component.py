"""Why a job of several roles fits or does not: the component that decides, its arithmetic, and how it came to be so large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.estimate import Component, Phase, Unmodelled, Verdict
    from compatcheck.memory.batches import Batch

_BY_BATCH = frozenset({"activations", "logits"})
_FIXED = frozenset({"reserve", "context", "workspace"})
_CONTRIBUTES = 0.1
"""Share of the peak from which a component is named."""
_UPDATES = frozenset({"forward", "backward", "step"})


def explain(
    verdict: Verdict,
    phases: tuple[Phase, ...],
    batches: Mapping[tuple[str, str], Batch],
    unmodelled: tuple[Unmodelled, ...] = (),
    problem: str | None = None,
) -> Verdict:
    """Put a verdict's reasons into words.

    Args:
        verdict: of all phases.
        phases: of all roles.
        batches: by role and phase.
        unmodelled: what the estimate leaves out; something of unknown size that needs more makes ``fits`` ``marginal``.
        problem: why the engine cannot start.
    """
    if not phases:
        return verdict
    if problem is not None and verdict.outcome != "unknown":
        return verdict._replace(outcome="does_not_fit", primary=problem)
    peak = max(phases, key=lambda phase: phase.needed.expected)
    movable = sorted(
        (part for part in peak.components if part.kind not in _FIXED), key=lambda part: -part.size.expected
    )
    if not movable:
        return verdict
    whole = max(1, peak.needed.expected)
    batch = batches.get((peak.role, peak.name))
    primary = describe(movable[0], peak, batch)
    contributing = tuple(
        f"{name_owned(part, peak)} {format_bytes(part.size.expected)}"
        for part in movable[1:]
        if part.size.expected >= _CONTRIBUTES * whole
    )
    if verdict.limit_bytes is not None:
        contributing += tuple(
            f"{phase.name.replace('_', ' ')}{'' if phase.role == 'train' else f' of {phase.role}'} is too large as well: "
            f"{format_bytes(phase.needed.expected)}"
            for phase in phases
            if phase is not peak
            and phase.needed.expected > verdict.limit_bytes
            and phase.name not in {"forward", "step"}
        )
    outcome = verdict.outcome
    if outcome == "fits" and any(left.name == "retrieval index" for left in unmodelled):
        outcome = "marginal"
    ruled_out = (*_without_effect(peak, batches), *verdict.ruled_out)
    verify = verdict.verify if outcome == "fits" else _verify(movable[0], peak) or verdict.verify
    return verdict._replace(
        outcome=outcome, primary=primary, contributing=contributing, ruled_out=ruled_out, verify=verify
    )


def rests_on(
    verdict: Verdict, phases: tuple[Phase, ...], shorter: Mapping[tuple[str, str], tuple[float, float]]
) -> str | None:
    """Say how long sequences may be on average for a run to fit that does not with all of them at the limit.

    Args:
        verdict: of the phases.
        phases: of all roles.
        shorter: by role and phase, where sequences are not padded (`compatcheck.memory.role.Role.shorter`); need is linear.
    """
    limit = verdict.limit_bytes
    if limit is None or verdict.margin_bytes is None or verdict.margin_bytes >= 0:
        return None
    share = 1.0
    for phase in phases:
        over = phase.needed.expected - limit
        if over > 0:
            full, less = shorter.get((phase.role, phase.name), (0.0, 0.0))
            share = min(share, full - over / less) if less else 0.0
    if share <= 0:
        return None
    return (
        "sequences are not padded, and all of a batch are taken to be as long as allowed: it fits where they are up to "
        f"{share:.0%} of that on average"
    )


def describe(part: Component, phase: Phase, batch: Batch | None) -> str:
    """Return a component with its arithmetic: ``log-probability logits: 2 B × 64 sequences × …  = 44.4 GiB: …``."""
    text = f"{name_owned(part, phase)}, {phase.name.replace('_', ' ')}: {part.formula} = {format_bytes(part.size.expected)}"
    if part.kind in _BY_BATCH and batch is not None and batch.words:
        text += f"; {batch.words}"
    return text


def name_owned(part: Component, phase: Phase) -> str:
    """Name a component, with the role that holds it where that is not the phase's own."""
    return part.name if part.role in {"train", "rollout", phase.role} else f"{part.role}'s {part.name}"


def _without_effect(peak: Phase, batches: Mapping[tuple[str, str], Batch]) -> tuple[str, ...]:
    """Name batch settings whose change would not lower the peak."""
    found = []
    for (role, name), batch in batches.items():
        update = name in _UPDATES
        if name not in {"backward", "forward", "log_probabilities"} or (
            update and name == "forward" and peak.name != name
        ):
            continue
        here = (role, name) == (peak.role, peak.name) or (update and role == peak.role and peak.name in _UPDATES)
        if here and batch.least is not None:
            found.append(f"{batch.key} of {batch.least:,} or more: a device holds only {batch.sequences:,} sequences")
        elif not here and role == peak.role:
            key = batch.key or f"micro batch of {'the update' if update else 'scoring'}"
            found.append(f"{key}: the peak is in {peak.name.replace('_', ' ')}")
    return tuple(dict.fromkeys(found))


def _verify(part: Component, phase: Phase) -> str | None:
    if part.kind == "logits":
        axis = (
            "micro_batch_size" if phase.name in _UPDATES and phase.role != "reference" else "log_prob_micro_batch_size"
        )
        return f"compatcheck estimate … --sweep {axis}, then one step with the largest value that fits"
    if part.kind == "kv_cache" or part.role == "rollout":
        return "compatcheck estimate … --set rollout.gpu_memory_utilization=…, then one rollout"
    return None
