"""The history of one quantity over the releases of a package: what was tested, where it changed, what was not looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["good", "bad", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One release that was tried."""

    version: str
    verdict: Verdict
    value: float | None = None
    """The metric, in its own unit (bytes, or a ratio)."""
    reason: str | None = None
    """Why it was skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Neighbouring tested releases of one verdict."""

    first: str
    last: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Two neighbouring tested releases of different verdicts."""

    kind: Literal["introduced", "fixed"]
    before: str
    after: str
    between: tuple[str, ...] = ()
    """Releases between the two that could not be tested: the change may be in one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What a search over releases found."""

    probe: str
    package: str
    metric: str
    predicted: float | None
    """The metric in a healthy release."""
    tolerance: float
    tested: tuple[Outcome, ...]
    """Oldest first."""
    intervals: tuple[Interval, ...]
    transitions: tuple[Transition, ...]
    untested: tuple[str, ...]
    """Releases in the range that were not tried: each lies between two of the same verdict."""
    older: str | None = None
    """Why nothing older than the first tested release was tried, when something is."""
