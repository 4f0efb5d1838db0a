"""Predictions beside measurements of many probes, in one table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.reporters.measurement import describe_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.measurement import Measurement

_HEAD = ("probe", "parameters", "metric", "predicted", "measured", "difference", "verdict")
_NUMBERS = range(3, 6)
"""Columns that are aligned to the right."""


class Judged(NamedTuple):
    """One measurement and what its probe says about it."""

    measurement: Measurement
    changed: Mapping[str, object]
    """Parameters that differ from the probe's defaults."""
    predictions: Mapping[str, float]
    """Metric → value in a healthy release."""
    metric: str
    """The one the verdict is about."""
    verdict: str
    """``good``, ``bad``, ``below`` (the prediction) or ``skipped``."""


def format_predictions(judged: Sequence[Judged]) -> str:
    """Format a row per predicted metric, one per measurement without a result, and a summary.

    The metric that decides is marked with an asterisk. Numbers are whole, so that a difference of a byte shows.
    """
    rows = [row for one in judged for row in _rows(one)]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    counts = Counter(one.verdict for one in judged)
    words = {"good": "good", "bad": "bad", "below": "below the prediction", "skipped": "without a result"}
    summary = ", ".join(f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict])
    probes = len({one.measurement.probe for one in judged})
    reasons = (
        f"  {one.measurement.probe}: {one.measurement.reason or one.measurement.status}"
        for one in judged
        if one.verdict == "skipped"
    )
    devices = [*dict.fromkeys(_describe(one.measurement) for one in judged if one.measurement.succeeded)]
    lines = [
        *devices,
        *([""] if devices else []),
        *(_line(row, widths) for row in (_HEAD, *rows)),
        "",
        f"{probes} probes, {len(judged)} measurements: {summary or 'nothing'}",
        *dict.fromkeys(reasons),
    ]
    return "\n".join(lines) + "\n"


def _rows(one: Judged) -> list[tuple[str, ...]]:
    measurement = one.measurement
    parameters = " ".join(f"{name}={show_parameter(value)}" for name, value in one.changed.items())
    if one.verdict == "skipped" and not measurement.succeeded:
        return [(measurement.probe, parameters, "", "", "", "", measurement.status)]
    rows: list[tuple[str, ...]] = []
    for name, predicted in one.predictions.items():
        value = measurement.metric(name)
        decides = name == one.metric
        rows.append(
            (
                measurement.probe,
                parameters,
                name + ("*" if decides else ""),
                _number(predicted),
                "-" if value is None else _number(value),
                "" if value is None or value == predicted else f"{value - predicted:+,.6g}",
                one.verdict if decides else "",
            )
        )
    return rows


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        text.rjust(width) if column in _NUMBERS else text.ljust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _describe(measurement: Measurement) -> str:
    versions = {name: version for name, version in measurement.versions.items() if name in {"python", "torch"}}
    return f"{measurement.backend}: {measurement.device}; {describe_versions(versions)}"
