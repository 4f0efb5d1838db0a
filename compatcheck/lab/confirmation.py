"""Whether a rule holds here: its suspect side measured against a healthy one, beside the rule's own formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from compatcheck.lab.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What measuring both sides of a rule said about it."""

    rule_id: str
    verdict: Literal["confirmed", "refuted", "inconclusive"]
    reason: str
    """Why, in words; for an inconclusive one what remains to be done and how."""
    probe: str | None = None
    metric: str | None = None
    suspect: Measurement | None = None
    baseline: Measurement | None = None
    measured_bytes: float | None = None
    """The metric on the suspect side less that on the baseline."""
    predicted_bytes: float | None = None
    """The rule's formula with the facts of the measured run; None when the rule has none."""
    low_bytes: float | None = None
    high_bytes: float | None = None
