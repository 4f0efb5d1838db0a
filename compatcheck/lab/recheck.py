"""What a second look at a growth showed: in longer rows, and of options that one side alone knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatcheck.lab.attribution import HeldPair
    from compatcheck.lab.measurement import Measurement

LONGER = 8
"""Times as many tokens as in the run that grew."""
LEAST_SHARE = 0.5
"""Of what grew, what has to grow in the longer run: kernels and peaks differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """What a second look at a growth showed."""

    unknown: tuple[str, ...] = ()
    """Options of the run that nothing in the older release names, and something in the newer one does."""
    longer: HeldPair | None = None
    """Both sides with longer rows; None where the run has no such parameter."""
    share: float | None = None
    """What grew with longer rows over what grew without; None where that gave no result."""

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the growth."""
        return not self.unknown and (self.share is None or self.share >= LEAST_SHARE)

    def describe(self, before: str, show: Callable[[Measurement], str]) -> str:
        """Say what was tried and what it showed.

        Args:
            before: name and number of the older release.
            show: writes the quantity that grew.
        """
        if self.unknown:
            return f"{before} knows no {', '.join(self.unknown)} and ran without: no comparison"
        if self.longer is None:
            return ""
        tried = f"with rows {LONGER} times as long {show(self.longer.before)} → {show(self.longer.after)}"
        return tried if self.holds else f"{tried}: the change does not last"
