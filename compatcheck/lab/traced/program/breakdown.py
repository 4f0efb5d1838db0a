"""What was live at a peak: components, and the tensors that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tracker import RESIZED

if TYPE_CHECKING:
    from .tracker import Allocation, Tracker

LARGEST = 3
"""Tensors that are named for each component."""
_LASTING = ("parameters", "gradients", "optimizer_states", "inputs", "workspace")
_COMMUNICATION = ("fsdp.", "c10d.", "_c10d_functional.")


def describe_peak(tracker: Tracker, at: int, groups: dict[str, set[int]], shape: dict[str, int]) -> dict[str, Any]:
    """Return the components at a point of a run, and the allocation that reached it.

    Args:
        tracker: of the whole run.
        at: number of events up to the point.
        groups: component → allocations that are known to belong to it.
        shape: ``vocab`` and ``length``, by which logits and masks are told from other tensors.

    Returns:
        ``components`` (name → bytes and the largest tensors) and ``peak``: the largest tensor that does not outlive the
        step, else the last that was made.
    """
    live: set[int] = set()
    for identifier, size, _ in tracker.events[:at]:
        if size:
            live.add(identifier)
        else:
            live.discard(identifier)
    members: dict[str, list[Allocation]] = {}
    for identifier in live:
        allocation = tracker.allocations[identifier]
        members.setdefault(_component(identifier, allocation, groups, shape), []).append(allocation)
    components = {
        name: {
            "bytes": sum(allocation.size for allocation in found),
            "largest": [_describe(allocation) for allocation in sorted(found, key=_by_size)[:LARGEST]],
        }
        for name, found in members.items()
    }
    made = [allocation for name, found in members.items() if name not in _LASTING for allocation in found]
    if not made and at:
        made = [tracker.allocations[tracker.events[at - 1][0]]]
    return {"components": components, "peak": _describe(min(made, key=_by_size)) if made else None}


def _by_size(allocation: Allocation) -> int:
    return -allocation.size


def _describe(allocation: Allocation) -> dict[str, Any]:
    return {
        "bytes": allocation.size,
        "shape": list(allocation.shape),
        "dtype": allocation.dtype,
        "operator": allocation.operator,
        "module": allocation.module,
        "phase": allocation.phase,
    }


def _component(identifier: int, allocation: Allocation, groups: dict[str, set[int]], shape: dict[str, int]) -> str:
    for name in ("parameters", "gradients", "optimizer_states", "inputs"):
        if identifier in groups.get(name, ()):
            return name
    if not allocation.dtype:
        return "workspace"
    if allocation.operator == RESIZED:
        return "live_parameters"
    if allocation.operator.startswith(_COMMUNICATION):
        return "communication"
    if allocation.phase == "step":
        return "optimizer temporaries"
    sizes = allocation.shape
    if sizes and sizes[-1] == shape["vocab"] and len(sizes) > 1:
        return "logits"
    if _is_mask(sizes, shape["length"]):
        return "masks"
    return "activations" if identifier in groups.get("activations", ()) else "temporaries"


def _is_mask(sizes: tuple[int, ...], length: int) -> bool:
    """Tell a mask, which all heads share, from scores and from activations that happen to be square."""
    return len(sizes) == 4 and sizes[1] == 1 and sizes[-1] == sizes[-2] == length
