"""Measurements for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.units import KIB, format_bytes
from compatcheck.lab.measurement import show_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.measurement import Measurement, PhaseMemory

_WIDTH = 80


def show_quantity(name: str, value: float | None) -> str:
    """Show a metric: bytes with a unit, other numbers plainly."""
    if value is None:
        return "-"
    if name.endswith("_bytes") and float(value).is_integer():
        return format_bytes(int(value))
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.4g}"


def show_exactly(name: str, value: float | None) -> str:
    """Show a metric to the last byte, with its size in binary units where that says more."""
    shown = show_quantity(name, value)
    if value is None or not name.endswith("_bytes") or not float(value).is_integer() or abs(value) < KIB:
        return shown
    return f"{int(value):,} B ({shown})"


def describe_versions(versions: Mapping[str, str]) -> str:
    """Name the releases a measurement was made with, Python's last."""
    names = sorted(versions, key=lambda name: (name == "python", name == "torch", name))
    return ", ".join(f"{name} {versions[name]}" for name in names)


def format_measurement(
    measurement: Measurement,
    *,
    predictions: Mapping[str, float],
    metric: str,
    verdict: str,
) -> str:
    """Format one measurement: its phases, results beside predictions, and the verdict.

    Args:
        measurement: what was measured.
        predictions: metric → value in a healthy release.
        metric: the one the verdict is about.
        verdict: ``good``, ``bad``, ``below`` (the prediction) or ``skipped``.
    """
    parameters = " ".join(f"{name}={show_parameter(value)}" for name, value in measurement.parameters.items())
    where = (describe_versions(measurement.versions), measurement.device)
    lines = [
        f"{measurement.probe}  {measurement.backend} ({measurement.accounting})",
        *wrap_text("; ".join(part for part in where if part not in {"", "none"}), "  "),
        *wrap_text(parameters, "  "),
    ]
    if measurement.phases:
        lines += ["", *_phases(measurement.phases)]
    names = list(dict.fromkeys((*measurement.results, *predictions)))
    if measurement.succeeded and names:
        width = max(map(len, names))
        lines.append("")
        for name in names:
            value = measurement.metric(name)
            line = f"  {name:<{width}}  {show_quantity(name, value):>11}"
            if name in predictions:
                line += f"  predicted {show_quantity(name, predictions[name])}"
                if value is not None and value != predictions[name]:
                    line += f" ({value - predictions[name]:+,.6g})"
            lines.append(line)
    lines.append("")
    said = "below the prediction" if verdict == "below" else verdict
    lines.append(f"  {said}" + (f": {metric}" if measurement.succeeded else f": {measurement.status}"))
    if measurement.reason:
        lines += wrap_text(measurement.reason, "  ")
    return "\n".join(lines) + "\n"


def _phases(phases: tuple[PhaseMemory, ...]) -> list[str]:
    reserved = any(phase.peak_reserved_bytes is not None for phase in phases)
    head = f"  {'phase':<14}{'peak':>11}{'at its end':>12}" + (f"{'reserved':>12}" if reserved else "")
    lines = [head + "  operator at the peak"]
    for phase in phases:
        peak = "-" if phase.peak_allocated_bytes is None else format_bytes(phase.peak_allocated_bytes)
        line = f"  {phase.name:<14}{peak:>11}{format_bytes(phase.live_bytes):>12}"
        if reserved:
            line += f"{format_bytes(phase.peak_reserved_bytes or 0):>12}"
        operator = phase.peak_operator or "-"
        if len(line) + 2 + len(operator) <= _WIDTH:
            lines.append(f"{line}  {operator}")
        else:
            lines += [line, f"    {operator}"]
    return lines


def wrap_text(text: str, indent: str, further: str | None = None) -> list[str]:
    """Fill lines of 80 columns; a word that is longer stays whole.

    Args:
        text: what to fill them with.
        indent: what the first line starts with.
        further: what the others start with; by default the same.
    """
    from textwrap import wrap  # noqa: PLC0415 (beside its use)

    return wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_on_hyphens=False,
        break_long_words=False,
    )
