"""Replay the allocations and frees of a traced run through the caching allocator: requested, allocated and reserved over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.traced.allocator import DEFAULT, CachingAllocator, NoMemoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.lab.traced.allocator import Block, Settings

POINTS = 2000
"""Points that a timeline is thinned to: each the highest of its stretch."""


class Event(NamedTuple):
    """One allocation or one free."""

    identifier: int
    """Which allocation, any number that is not in use."""
    size: int
    """Bytes asked for; 0 frees it."""
    stream: int = 0


class Mark(NamedTuple):
    """Where a phase begins in the events."""

    begin: int
    """Index of its first event."""
    name: str


class PhasePeak(NamedTuple):
    """Highest numbers over one phase, in bytes."""

    name: str
    requested: int
    """Sum of what was asked for."""
    allocated: int
    """``torch.cuda.max_memory_allocated``."""
    reserved: int
    """``torch.cuda.max_memory_reserved``."""


class Replay(NamedTuple):
    """What became of the events."""

    phases: tuple[PhasePeak, ...]
    timeline: tuple[tuple[int, int, int], ...]
    """Event, allocated and reserved bytes there; at most `POINTS` of them."""
    retries: int
    """How often the cache had to be emptied for want of memory."""
    out_of_memory: int | None = None
    """The event that found no memory; nothing after it was replayed."""

    @property
    def peak_reserved(self) -> int:
        """The highest reserved number of all phases."""
        return max((phase.reserved for phase in self.phases), default=0)

    @property
    def peak_allocated(self) -> int:
        """The highest allocated number of all phases."""
        return max((phase.allocated for phase in self.phases), default=0)


def replay(
    events: Sequence[Event | tuple[int, int, int]],
    marks: Sequence[Mark] = (Mark(0, "run"),),
    settings: Settings = DEFAULT,
    *,
    device_bytes: int | None = None,
) -> Replay:
    """Replay events.

    Args:
        events: in the order of the run.
        marks: beginnings of phases, ascending; events before the first belong to none.
        settings: of the allocator.
        device_bytes: memory that the driver can give; None never ends.
    """
    allocator = CachingAllocator(settings, device_bytes=device_bytes)
    live: dict[int, Block] = {}
    phases: list[PhasePeak] = []
    series = _Series(len(events))
    failed: int | None = None
    ends = [mark.begin for mark in marks[1:]] + [len(events)]
    index = 0
    for number, (name, begin, end) in enumerate(
        [("", 0, marks[0].begin), *((mark.name, mark.begin, stop) for mark, stop in zip(marks, ends, strict=True))]
    ):
        allocator.reset_peaks()
        try:
            for index in range(begin, end):
                identifier, size, stream = events[index]
                if size:
                    live[identifier] = allocator.allocate(size, stream)
                    series.add(index, allocator)
                else:
                    allocator.free(live.pop(identifier))
        except NoMemoryError:
            failed = index
        if number:
            phases.append(PhasePeak(name, allocator.peak_requested, allocator.peak_allocated, allocator.peak_reserved))
        if failed is not None:
            break
    return Replay(tuple(phases), tuple(series.points), allocator.retries, failed)


class _Series:
    """Keeps the highest allocated number of every stretch of events."""

    def __init__(self, length: int) -> None:
        self.stretch = max(1, -(-length // POINTS))
        self.points: list[tuple[int, int, int]] = []

    def add(self, index: int, allocator: CachingAllocator) -> None:
        point = (index, allocator.allocated, allocator.reserved)
        if self.points and self.points[-1][0] // self.stretch == index // self.stretch:
            if point[1] > self.points[-1][1]:
                self.points[-1] = point
        else:
            self.points.append(point)
