"""One measured quantity over the releases of a package, and where it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        """Value after over value before, None from nothing."""
        before = self.series.values[self.before]
        return self.series.values[self.after] / before if before else None
