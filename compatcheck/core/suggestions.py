"""Changes of a run that would need less memory, and the walls of its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.estimate import Size
    from compatcheck.core.facts import Value

SAME_RESULT = "same result"
SLOWER = "same result, slower"
CHANGES_TRAINING = "changes training"
EFFECTS = (SAME_RESULT, SLOWER, CHANGES_TRAINING)
"""What a change does besides saving memory, the gentlest first."""


class SuggestedChange(NamedTuple):
    """One change of a run."""

    words: str
    """In words: ``micro batch 8 → 4, accumulate 2 → 4``."""
    facts: Mapping[str, Value]
    """Fact → the value it would have."""
    effect: str
    """One of `EFFECTS`."""
    note: str = ""
    """What must be known to apply it."""


class Suggestion(NamedTuple):
    """One change, or up to three together, priced by the whole model."""

    changes: tuple[SuggestedChange, ...]
    device: Size
    """Peak device use after it."""
    saved_bytes: int
    """Expected peak before minus after."""
    outcome: str
    """``fits``, ``marginal``, ``does_not_fit`` or ``unknown``."""

    @property
    def effect(self) -> str:
        """The strongest effect of the changes."""
        return max((change.effect for change in self.changes), key=EFFECTS.index)


class Wall(NamedTuple):
    """How far one setting can go."""

    fact: str
    current: int | None
    """The run's own value."""
    fits: int | None
    """Largest value that fits, of nodes the smallest; None when not even the smallest does, of nodes when none tried does."""
    fails: int | None
    """Next value, which does not fit: ``fits`` + 1 or the next step the setting allows, of nodes ``fits`` - 1; None when nothing
    tried fails."""
    step: int
    """Distance of the values tried: 1, or what the setting is a multiple of."""
    bytes_per_step: int
    """What one step more costs at the run's own value."""
    points: tuple[tuple[int, int], ...] = ()
    """Value → expected peak in bytes, the allocator's cache apart as in `fits`, for a picture."""


class Placement(NamedTuple):
    """Hardware that a run would fit on."""

    instance: str | None
    """Cloud instance type; None for a plain device."""
    gpu: str
    gpus: int
    """Devices in all."""
    device: Size
    limit_bytes: int
