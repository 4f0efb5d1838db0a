"""What was measured behind a rule: the step over releases, and the pairs that its formula is held against."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.reporters.measurement import show_quantity
from compatcheck.reporters.figure import draw_steps
from compatcheck.rules.locate import CHECKOUT
from compatcheck.rules.measured import selects
from docs.generator.page import escape_prose, fold, show_figure, write_table
from docs.generator.series import join_runs, run_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.rules.rule import Comparison, EvidenceSelection

_ROOT = Path(CHECKOUT).parent


def write_measured(measured: Mapping[str, Any] | None, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Draw the step, if one was measured, and write the pairs."""
    compared = [row for each in comparisons for row in _compare(each)]
    if measured is None and not compared:
        return
    yield "## Measured"
    if measured is not None:
        metric = measured["metric"]
        points = [(release, value) for release, value in measured["points"]]
        title = f"{metric.replace('_', ' ')} over releases of {measured['package']}"
        yield show_figure(draw_steps("steps", title, points, partial(show_quantity, metric)))
        rows = [(run_text(run), show_quantity(metric, run[2])) for run in join_runs(points)]
        yield write_table((measured["package"], f"{metric.replace('_', ' ')}:"), rows)
        changed = ", ".join(f"{name} = {show_parameter(value)}" for name, value in measured["parameters"].items())
        yield (
            f"Probe `{measured['probe']}` ({measured['backend']})"
            + (f": {changed}." if changed else ".")
            + " Tiny sizes: it is the step and its formula that count, not the bytes."
        )
    if compared:
        table = write_table(("quantity", "with it", "bytes:", "without it", "bytes:"), compared)
        yield table if measured is None else fold("Pairs that the formula is held against", table)


def _compare(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Write one pair of measurements: with what is lost, and without."""
    suspect, baseline = comparison.suspect, comparison.baseline
    cells = [_name_side(suspect.versions, suspect.parameters), _value(suspect, comparison.metric)]
    if baseline is None:
        cells += ["", "0"]
    else:
        changed = {name: value for name, value in baseline.parameters.items() if suspect.parameters.get(name) != value}
        cells += [_name_side(baseline.versions, changed), _value(baseline, comparison.metric)]
    if all(cells[1::2]):
        yield (f"`{comparison.metric}`", *cells)


def _name_side(versions: Mapping[str, str], parameters: Mapping[str, object]) -> str:
    shown = [f"{name} {version}" for name, version in versions.items()]
    shown += [f"{name} = {show_parameter(value)}" for name, value in parameters.items()]
    return escape_prose(", ".join(shown) or "as before")


@cache
def _read(path: str) -> tuple[Measurement, ...]:
    return read_measurements(path)


def _value(part: EvidenceSelection, metric: str) -> str:
    found = next((one for one in _read(str(_ROOT / part.file)) if selects(part, one.versions, one.parameters)), None)
    value = None if found is None else found.metric(part.metric or metric)
    return "" if value is None else f"{value:,.10g}"
