"""Whose a change between two releases is: that of the package under test, or of what was installed beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.lab.measurement import Measurement

Cause = Literal["package", "neighbours", "both", "unknown"]
_NAMED = 3
"""So many neighbours are named in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPair:
    """Both sides of a change with the same packages beside them."""

    beside: str
    """Release whose neighbours they are."""
    before: Measurement
    after: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Whose a change is, and by what."""

    cause: Cause
    """``both``: it is there beside the packages of one side alone; ``unknown``: no side could be measured beside the other's."""
    moved: Mapping[str, tuple[str | None, str | None]]
    """Other distribution → its versions on the two sides; None where it is missing."""
    held: tuple[HeldPair, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the change is the package's."""
        return self.cause == "package"

    def describe(self, package: str, show: Callable[[Measurement], str]) -> str:
        """Say what else moved and what was measured with it held; empty where nothing else did.

        Args:
            package: whose releases the change lies between.
            show: writes the quantity that changed.
        """
        if not self.moved:
            return ""
        moves = [
            f"{name} {before or 'absent'} → {after or 'absent'}{' with other files' if before == after else ''}"
            for name, (before, after) in self.moved.items()
        ]
        named = moves[:_NAMED] + ([f"{len(moves) - _NAMED} more"] if len(moves) > _NAMED else [])
        tried = [
            f"with those of {one.beside} on both sides {show(one.before)} → {show(one.after)}" for one in self.held
        ]
        verdict = {
            "package": f"the change is {package}'s own",
            "neighbours": f"the change is not {package}'s",
            "both": f"the change is {package}'s only together with them",
            "unknown": f"not known whether {package}'s",
        }[self.cause]
        return f"{', '.join(named)} moved, too; {'; '.join([*tried, verdict])}"

    def to_json(self, value: Callable[[Measurement], float | None]) -> dict[str, Any]:
        """Return it as JSON data; ``value`` takes the quantity that changed."""
        return {
            "cause": self.cause,
            "moved": {name: list(versions) for name, versions in self.moved.items()},
            "held": [
                {"beside": one.beside, "before": value(one.before), "after": value(one.after)} for one in self.held
            ],
        }
