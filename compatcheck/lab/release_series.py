"""One measured quantity over the releases of a package, and where it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.attribution import Attribution, HeldPair
    from compatcheck.lab.recheck import Recheck

RELATIVE_TOLERANCE = 0.005
"""Smaller changes are not reported: no regression anyone would file, and more than any probe varies by."""
_LEAST_BYTES = 0.5
"""Bytes, also of one logit or token, below which a difference is what the slope of peaks leaves of an allocator's rounding."""


def differ(metric: str, one: float, other: float) -> bool:
    """Tell whether two values of a metric differ by more than a probe varies."""
    least = _LEAST_BYTES if "bytes" in metric.split("_") else 0
    difference = abs(one - other)
    return difference >= least and difference > RELATIVE_TOLERANCE * max(abs(one), abs(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one probe, with one set of parameters, over releases."""

    probe: str
    parameters: Mapping[str, Any]
    backend: str
    metric: str
    predicted: float | None
    """The metric in a healthy release."""
    values: Mapping[str, float]
    """Release → value, oldest first; releases without a result are missing."""
    changed: tuple[str, ...] = ()
    """Parameters that are not the probe's defaults."""

    def tells_apart(self, one: float, other: float) -> bool:
        """Tell whether two values of the metric differ by more than a probe varies."""
        return differ(self.metric, one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesChange:
    """Two neighbouring measured releases whose values differ."""

    series: Series
    before: str
    after: str
    attribution: Attribution | None = None
    """Whose it is; None until both sides were measured with all else held."""
    recheck: Recheck | None = None
    """What a second look at a growth showed; None where there was none."""

    @property
    def is_own(self) -> bool:
        """Whether the change was shown to be that of the package whose releases these are, and nothing speaks against it."""
        return self.attribution is not None and self.attribution.is_own and self.lasts

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be the package's own or that of what came with it, and nothing speaks against it."""
        return self.attribution is not None and self.attribution.cause in {"both", "unknown"} and self.lasts

    @property
    def lasts(self) -> bool:
        """Whether a second look showed nothing that speaks against the change, or there was none."""
        return self.recheck is None or self.recheck.holds

    @property
    def shown_held(self) -> HeldPair | None:
        """The first pair with all else held that shows the change; None where there is none."""
        return next(filter(self.shown_by, self.attribution.held if self.attribution else ()), None)

    def shown_by(self, pair: HeldPair) -> bool | None:
        """Tell whether two measurements of the same task differ as this change does; None where one has no result."""
        before, after = pair.before.metric(self.series.metric), pair.after.metric(self.series.metric)
        if before is None or after is None or not (pair.before.succeeded and pair.after.succeeded):
            return None
        return self.series.tells_apart(before, after) and (after > before) == (self.difference > 0)

    @property
    def sides(self) -> tuple[float, float]:
        """Values before and after; of what is the package's own, with all else held, so that no neighbour's share is in them."""
        own = self.attribution is not None and self.attribution.is_own
        if own and (pair := self.shown_held) is not None:
            return pair.before.metric(self.series.metric) or 0.0, pair.after.metric(self.series.metric) or 0.0
        return self.series.values[self.before], self.series.values[self.after]

    @property
    def difference(self) -> float:
        """Value after less value before."""
        return self.series.values[self.after] - self.series.values[self.before]

    @property
    def ratio(self) -> float | None:
        """Value after over value before; None from nothing, to nothing, or below it."""
        before, after = self.series.values[self.before], self.series.values[self.after]
        return after / before if before > 0 and after > 0 else None
