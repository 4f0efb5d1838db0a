"""What traces a run's training step: whoever asks for an estimate gives it, for the checker itself runs no program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.estimate import Estimate
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


class Traced(NamedTuple):
    """A run's training step, traced on fake tensors."""

    estimate: Estimate
    timeline: tuple[tuple[int, int, int], ...] = ()
    """Event, allocated bytes and reserved bytes."""
    details: tuple[str, ...] = ()
    """Sentences: what makes the peak, and which releases were run."""
    ran: frozenset[str] = frozenset()
    """Distributions whose code took part: what is wrong with it is in the numbers already."""


class Untraced(NamedTuple):
    """Why there is no trace."""

    reason: str


class Tracer(Protocol):
    """Runs one training step of a subject."""

    def __call__(self, subject: Subject, rules: RuleSet, /) -> Traced | Untraced:
        """Return the trace, or why there is none."""
