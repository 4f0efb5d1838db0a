"""Does it fit: the peak of device use against what the device has, and the component that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Size, Verdict, total

if TYPE_CHECKING:
    from compatcheck.core.estimate import Component, Phase

NOT_A_NEED = frozenset({"reserve"})
"""What the allocator caches is given back before an allocation fails (CUDACachingAllocator.cpp, release_cached_blocks)."""
_CONTRIBUTES = 0.1
"""Share of the peak from which a component is named."""
_NEGLIGIBLE = 0.01
_FIXED = frozenset({"reserve", "context", "workspace"})
"""Kinds that no setting of the run removes."""


def judge(phases: tuple[Phase, ...], limit: int | None) -> Verdict:
    """Judge the phases of a run.

    ``fits``: the high bound of device use is within the limit. ``does_not_fit``: even the low bound, without the allocator's
    cache, is not. ``marginal`` in between.

    Args:
        phases: of one role, or of roles that take turns.
        limit: memory of the device as nvidia-smi shows it, in bytes; None when not known.
    """
    if not phases:
        return Verdict("unknown", limit, None)
    peak = max(phases, key=lambda phase: phase.size.expected)
    primary, contributing, ruled_out = _causes(peak)
    if limit is None:
        return Verdict("unknown", None, None, primary, contributing, ruled_out)
    needs = [_need(phase) for phase in phases]
    low, expected = max(size.low for size in needs), max(size.expected for size in needs)
    high = max(phase.size.high for phase in phases)
    outcome = "fits" if high <= limit else "does_not_fit" if low > limit else "marginal"
    verify = "compatcheck probe run training_step --backend cuda" if outcome == "marginal" else None
    return Verdict(outcome, limit, limit - expected, primary, contributing, ruled_out, verify)


def _need(phase: Phase) -> Size:
    return total(part.size for part in phase.components if part.kind not in NOT_A_NEED)


def _causes(peak: Phase) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Return the largest component, the others that matter, and kinds that do not."""
    whole = max(1, peak.size.expected)
    movable: list[Component] = sorted(
        (part for part in peak.components if part.kind not in _FIXED), key=lambda part: -part.size.expected
    )
    if not movable:
        return None, (), ()
    contributing = [part.name for part in movable[1:] if part.size.expected >= _CONTRIBUTES * whole]
    small = [part.name for part in movable[1:] if part.size.high < _NEGLIGIBLE * whole]
    return movable[0].name, tuple(contributing), tuple(small)
