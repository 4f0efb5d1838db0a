"""One measured quantity over the releases of a package, and where it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RELATIVE_TOLERANCE = 0.005
"""Smaller changes are not reported: no regression anyone would file, and more than any probe varies by."""
_LEAST_BYTES = 0.5
"""Bytes, also of one logit or token, below which a difference is what the slope of peaks leaves of an allocator's rounding."""


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

    def tells_apart(self, one: float, other: float) -> bool:
        """Tell whether two values of the metric differ by more than a probe varies."""
        least = _LEAST_BYTES if "bytes" in self.metric.split("_") else 0
        difference = abs(one - other)
        return difference >= least and difference > RELATIVE_TOLERANCE * max(abs(one), abs(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesChange:
    """Two neighbouring measured releases whose values differ."""

    series: Series
    before: str
    after: str

    @property
    def difference(self) -> float:
        """Value after less value before."""
        return self.series.values[self.after] - self.series.values[self.before]

    @property
    def ratio(self) -> float | None:
        """Value after over value before; None from nothing, to nothing, or below it."""
        before, after = self.series.values[self.before], self.series.values[self.after]
        return after / before if before > 0 and after > 0 else None
