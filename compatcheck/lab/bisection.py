"""The history of one quantity over the releases of a package: what was tested, where it changed, what was not looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from compatcheck.lab.attribution import Attribution

Verdict = Literal["good", "bad", "below", "skipped"]
"""``below``: less than a healthy release is derived to hold, which is no regression, and nothing that was understood."""


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

    kind: Literal["introduced", "fixed", "lowered", "raised"]
    """The last two are between good and below."""
    before: str
    after: str
    between: tuple[str, ...] = ()
    """Releases between the two that could not be tested: the change may be in one of them."""
    attribution: Attribution | None = None
    """Whose it is; None until both sides were measured with all else held."""


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
    criterion: str | None = None
    """What makes a release bad where a person said so; None is the probe's own verdict."""
    older: str | None = None
    """Why nothing older than the first tested release was tried, when something is."""
