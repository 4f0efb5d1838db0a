"""The arithmetic of the comparison: like with like, errors, verdicts, and what they add up to."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LADDER = {
    "allocated": ("allocated", "reserved", "device"),
    "reserved": ("reserved", "allocated", "device"),
    "device": ("device", "reserved", "allocated"),
}
"""What was measured → the predictions to hold against it, the like first; a tool with one figure has it held against all."""

PASSES = frozenset({"fits", "marginal"})
"""Verdicts under which a person would start the run."""


class Scored(NamedTuple):
    """One tool on one case."""

    case: str
    group: str
    error: float | None
    """Signed, relative to the measured peak; None without a peak or a prediction."""
    decimal_error: float | None
    """The same, had a report's GB meant 10**9 bytes."""
    right: bool | None
    """Whether the verdict agrees with what happened; None without a verdict."""
    outcome: str
    verdict: str | None
    documented: bool = True
    """Whether the tool's documentation leads to the input."""


class Summary(NamedTuple):
    """One tool over all cases."""

    expressible: int
    peaks: int
    median_error: float | None
    decimal_median_error: float | None
    median_of_sources: float | None
    """Median over the sources of their median errors, so that a source with many rows does not decide."""
    within_ten_percent: int
    verdicts: int
    right: int
    marginal: int
    false_alarms: int
    """Ran, called out of memory."""
    missed: int
    """Ran out of memory, called fits (marginal is not counted)."""
    seen_oom: int
    """Out-of-memory cases it gave a verdict on."""


def choose_like(prediction: Mapping[str, int | None], kind: str) -> int | None:
    """Choose the prediction to compare with a measurement of a kind.

    Args:
        prediction: bytes by ``allocated``, ``reserved``, ``device``.
        kind: what was measured.
    """
    for name in LADDER[kind]:
        value = prediction.get(name)
        if value is not None:
            return value
    return None


def relative_error(predicted: float, low: float, high: float) -> float:
    """Return the signed distance to a measured range, relative to its middle; 0 inside it."""
    middle = (low + high) / 2
    if predicted < low:
        return (predicted - low) / middle
    if predicted > high:
        return (predicted - high) / middle
    return 0.0


def judge(total: int | None, limit: int) -> str | None:
    """Give the verdict of a tool that gives none: its total against the device's memory."""
    if total is None:
        return None
    return "fits" if total <= limit else "does_not_fit"


def is_right(verdict: str | None, outcome: str) -> bool | None:
    """Say whether a verdict agrees with what happened.

    ``marginal`` agrees with both: it tells a person to look, and promises nothing.
    """
    if verdict is None or verdict == "unknown":
        return None
    if outcome == "fits":
        return verdict in PASSES
    return verdict != "fits"


def summarize(scored: Sequence[Scored]) -> Summary:
    """Add up one tool's scores."""
    errors = [abs(item.error) for item in scored if item.error is not None]
    decimals = [abs(item.decimal_error) for item in scored if item.decimal_error is not None]
    judged = [item for item in scored if item.right is not None]
    return Summary(
        expressible=len(scored),
        peaks=len(errors),
        median_error=_median(errors),
        decimal_median_error=_median(decimals),
        median_of_sources=_median(list(medians_by_group(scored).values())),
        within_ten_percent=sum(error <= 0.1 for error in errors),
        verdicts=len(judged),
        right=sum(item.right is True for item in judged),
        marginal=sum(item.verdict == "marginal" for item in judged),
        false_alarms=sum(item.outcome == "fits" and item.right is False for item in judged),
        missed=sum(item.outcome == "oom" and item.right is False for item in judged),
        seen_oom=sum(item.outcome == "oom" for item in judged),
    )


def medians_by_group(scored: Iterable[Scored]) -> dict[str, float]:
    """Return the median error of each source."""
    groups: dict[str, list[float]] = {}
    for item in scored:
        if item.error is not None:
            groups.setdefault(item.group, []).append(abs(item.error))
    return {name: median(errors) for name, errors in groups.items()}


def restrict(scored: Iterable[Scored], cases: Iterable[str]) -> list[Scored]:
    """Keep the scores of some cases, for two tools on the cases both answered."""
    wanted = set(cases)
    return [item for item in scored if item.case in wanted]


def count_closer(scored: Iterable[Scored], others: Iterable[Scored]) -> int:
    """Count the cases on which the first tool's error is smaller than the second's."""
    errors = {item.case: abs(item.error) for item in others if item.error is not None}
    return sum(abs(item.error) < errors[item.case] for item in scored if item.error is not None and item.case in errors)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
