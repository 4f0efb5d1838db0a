"""Figures of an estimate: what each phase holds, the peak against a setting, memory over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import say_outcome
from compatcheck.reporters.estimate import name_phase, wall_text
from compatcheck.reporters.figure import draw_bars, draw_steps, make_bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.estimate_report import EstimateReport
    from compatcheck.reporters.figure import Figure

_STRETCHES = 200
"""Columns of memory over time, each the highest of what it stands for."""


def draw_estimates(reports: Sequence[EstimateReport]) -> list[Figure]:
    """Draw every run that has an estimate: its phases against the limit, a figure for each wall, and time where it was traced."""
    drawn = [report for report in reports if report.estimate.phases]
    return [figure for index, report in enumerate(drawn) for figure in _draw(report, index)]


def _draw(report: EstimateReport, index: int) -> Iterator[Figure]:
    bars = [make_bar(name_phase(phase), phase) for phase in report.estimate.phases]
    verdict = report.estimate.verdict
    title = f"{report.id or report.subject}: {say_outcome(verdict.outcome, verdict.unless)}"
    yield draw_bars(f"memory-{index}", title, bars, verdict.limit_bytes)
    for wall in report.walls:
        points = [(f"{value:,}", size) for value, size in wall.points]
        if points:
            yield draw_steps(f"{wall.fact}-{index}", wall_text(wall), points)
    if report.timeline:
        width = -(-len(report.timeline) // _STRETCHES)
        columns = [report.timeline[start : start + width] for start in range(0, len(report.timeline), width)]
        highest = [(str(column[0][0]), max(size for _, size, _ in column)) for column in columns]
        yield draw_steps(f"time-{index}", "Allocated on one device, over the allocator's events", highest)
