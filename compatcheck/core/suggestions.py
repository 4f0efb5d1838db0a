"""Changes of a run that would need less memory, and the walls of its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.effects import worst_effect
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.estimate import Size
    from compatcheck.core.facts import Value
    from compatcheck.core.fix import Change


class SuggestedChange(NamedTuple):
    """One change of a run."""

    words: str
    """In words: ``micro batch 8 → 4, accumulate 2 → 4``."""
    facts: Mapping[str, Value]
    """Fact → the value it would have."""
    effect: str
    """One of `compatcheck.core.effects.EFFECTS`."""
    note: str = ""
    """What must be known to apply it."""
    role: str | None = None
    """The model it is about alone; None where it is about the one that is trained, or about all."""


class Suggestion(NamedTuple):
    """A change, or several together, judged whole: the findings and the estimate of the run after it."""

    changes: tuple[Change, ...]
    """With what has to move along."""
    needed: Size
    """Peak of what the run cannot do without, known regressions included."""
    saved_bytes: int
    """Expected need before minus after."""
    outcome: str
    """``fits``, ``marginal``, ``does_not_fit`` or ``unknown``."""
    clears: tuple[str, ...] = ()
    """Rules whose findings it clears."""
    unless: str | None = None
    """See `compatcheck.core.estimate.Verdict`."""

    @property
    def effect(self) -> str:
        """What costs the person most of the changes."""
        return worst_effect(change.effect for change in self.changes)


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
    """What each of them needs."""
    limit_bytes: int
    gradient_accumulation_steps: int | None = None
    """Steps that keep the global batch; 0 where none does, None where the number of devices does not touch it."""
