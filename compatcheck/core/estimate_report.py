"""What is said of one subject's memory: the estimate, with all that was asked for beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Value
    from compatcheck.core.source import Source
    from compatcheck.core.suggestions import Placement, Suggestion, Wall


class Doubts(NamedTuple):
    """What stands against the facts an estimate is made of."""

    unresolved: tuple[tuple[str, Source, str], ...] = ()
    """Facts set to a value nobody can tell: name, place, why."""
    conflicts: tuple[tuple[str, tuple[tuple[Value, Source], ...]], ...] = ()
    """Facts that two inputs state differently, with the values; the first one stands."""
    unread: tuple[Source, ...] = ()
    """Keys nobody understood whose names are about memory."""
    gaps: tuple[tuple[Source, str], ...] = ()
    """What was not read and may set keys, so that no default of these is taken: place, why."""
    unselected: tuple[str, ...] = ()
    """Extras and groups that are not selected, with the packages that may be there, in words."""


class EstimateReport(NamedTuple):
    """What one subject's estimate says."""

    subject: str
    """The job in a line: model, batch, sharding, devices."""
    estimate: Estimate
    id: str = ""
    """Name of the subject: its files; empty where there is one alone."""
    doubts: Doubts = Doubts()
    suggestions: tuple[Suggestion, ...] = ()
    walls: tuple[Wall, ...] = ()
    placements: tuple[Placement, ...] = ()
    no_placement: str = ""
    """Why no hardware was found that it fits on; empty where some was, or none was looked for."""
    details: tuple[str, ...] = ()
    """Sentences about how it became known."""
    timeline: tuple[tuple[int, int, int], ...] = ()
    """Event, allocated bytes and reserved bytes of a traced run."""
