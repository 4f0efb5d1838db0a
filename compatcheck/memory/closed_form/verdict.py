"""Does it fit: the peak of device use against what the device has, and the component that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Verdict
from compatcheck.memory.deciding_component import name_owned

if TYPE_CHECKING:
    from compatcheck.core.estimate import Component, Phase

SAFE = 0.8
"""No run whose estimate lay below this share of the memory ran out of it: Fujii et al., arXiv 2411.06465 (454 runs)."""
UNREAD = 3.8
"""Times the expected need from which a run of a program that nobody read may die: so much of it LitGPT took under FSDP
before its code was read, the most of all programs that were held against the model before they were."""
REPORTED = (0.98, 0.992, 1.0)
"""Share of the memory that nvidia-smi shows which CUDA reports as the device's: 79.19 of 79.65 GiB on H100, 79.22 of 80 on
A100, 23.58 of 23.99 on RTX 4090 (logs of vLLM)."""
_CONTRIBUTES = 0.1
"""Share of the peak from which a component is named."""
_NEGLIGIBLE = 0.01
_FIXED = frozenset({"reserve", "context", "workspace"})
"""Kinds that no setting of the run removes."""


def judge(phases: tuple[Phase, ...], limit: int | None, verify: str | None = None) -> Verdict:
    """Judge the phases of a run.

    ``fits``: the high bound, with all that the allocator may hold, is within the least that CUDA may report of the limit
    (`REPORTED`), of which an engine takes its share; or the need is expected within `SAFE` of it, as those runs were estimated,
    and its high bound within that.
    ``does_not_fit``: even the low bound of the need is above. ``marginal`` in between: a full allocator gives back segments that
    are wholly free (CUDACachingAllocator.cpp, release_cached_blocks), but not those with one tensor left.

    Args:
        phases: of one role, or of roles that take turns.
        limit: memory of the device as nvidia-smi shows it, in bytes; None when not known.
        verify: the command that would settle a marginal verdict, None when there is none.
    """
    if not phases:
        return Verdict("unknown", limit, None)
    peak = max(phases, key=lambda phase: phase.needed.expected)
    primary, contributing, ruled_out = _causes(peak)
    if limit is None:
        return Verdict("unknown", None, None, primary, contributing, ruled_out)
    low, needed = max(phase.needed.low for phase in phases), peak.needed.expected
    high = max(phase.needed.high - _given_back(phase) for phase in phases)
    held = max(phase.size.high - _given_back(phase) for phase in phases)
    usable = REPORTED[0] * limit
    fits = held <= usable or (needed <= SAFE * limit and high <= usable)
    outcome = "does_not_fit" if low > limit else "fits" if fits else "marginal"
    command = verify if outcome == "marginal" else None
    return Verdict(outcome, limit, limit - needed, primary, contributing, ruled_out, command)


def _given_back(phase: Phase) -> float:
    """Return what engines take less where CUDA reports the least: their weights and pool are a share of what it reports."""
    pools = [
        part
        for part in phase.components
        if {"rollout.gpu_memory_utilization", "hardware.memory_bytes"} <= {*part.facts}
    ]
    weights = [
        part for part in phase.components if part.kind == "parameters" and part.role in {one.role for one in pools}
    ]
    return (1 - REPORTED[0]) * sum(part.size.high for part in (*pools, *weights))


def _causes(peak: Phase) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Return the largest component, the others that matter, and kinds that do not."""
    whole = max(1, peak.needed.expected)
    movable: list[Component] = sorted(
        (part for part in peak.components if part.kind not in _FIXED), key=lambda part: -part.size.expected
    )
    if not movable:
        return None, (), ()
    contributing = [name_owned(part, peak) for part in movable[1:] if part.size.expected >= _CONTRIBUTES * whole]
    small = [name_owned(part, peak) for part in movable[1:] if part.size.high < _NEGLIGIBLE * whole]
    return name_owned(movable[0], peak), tuple(contributing), tuple(small)
