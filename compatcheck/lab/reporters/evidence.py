"""The store of measurements for a terminal, in 80 columns."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from compatcheck.core.units import format_bytes
from compatcheck.lab.reporters.measurement import describe_versions, show_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.lab.measurement import Measurement

_WIDTH = 80
_SHOWN_PARAMETERS = 6


def format_list(rows: Iterable[tuple[str, Measurement]]) -> str:
    """Format measurements, each in a few lines: what, where, when; releases; results or the reason there are none.

    Args:
        rows: id and measurement.
    """
    return "".join(f"{line}\n" for name, measurement in rows for line in _entry(name, measurement))


def _entry(name: str, measurement: Measurement) -> Iterator[str]:
    head = f"{name}  {measurement.probe}"
    tail = f"{measurement.backend} {measurement.status}  {(measurement.time or 'time unknown')[:16].replace('T', ' ')}"
    gap = _WIDTH - len(head) - len(tail)
    yield f"{head}{' ' * gap}{tail}" if gap > 1 else head
    if gap <= 1:
        yield f"{tail:>{_WIDTH}}"
    yield from _indented(", ".join([describe_versions(_packages(measurement)), *_parameters(measurement)]))
    if not measurement.succeeded:
        yield from _indented(measurement.reason or "no reason is known")
        return
    results = [f"{key} {show_quantity(key, value)}" for key, value in measurement.results.items()]
    peak = measurement.metric("peak_allocated_bytes")
    if not results and peak is not None:
        results = [f"peak {format_bytes(peak)}"]
    if results:
        yield from _indented(", ".join(results))


def format_measurement(name: str, measurement: Measurement) -> str:
    """Format one measurement with everything it holds."""
    return "\n".join(_details(name, measurement)) + "\n"


def _details(name: str, measurement: Measurement) -> Iterator[str]:
    yield f"{measurement.probe}: {measurement.status}"
    rows = (
        ("id", name),
        ("measured", measurement.time or "time unknown"),
        ("back end", f"{measurement.backend}, counting {measurement.accounting}, on {measurement.device}"),
        ("releases", describe_versions(measurement.versions)),
        ("parameters", ", ".join(f"{key}={_value(value)}" for key, value in measurement.parameters.items())),
        ("probe text", measurement.probe_hash),
        ("note" if measurement.succeeded else "reason", measurement.reason or ""),
        ("again", measurement.command or ""),
    )
    for label, text in rows:
        if text:
            yield from _labelled(label, text)
    if measurement.phases:
        yield ""
        yield f"  {'phase':<14}{'peak bytes':>18}{'live bytes':>18}"
        for phase in measurement.phases:
            peak = "" if phase.peak_allocated_bytes is None else f"{phase.peak_allocated_bytes:,}"
            yield f"  {phase.name:<14}{peak:>18}{phase.live_bytes:>18,}"
            if phase.peak_operator:
                yield f"    peak in {phase.peak_operator}"
            if phase.peak_reserved_bytes is not None:
                yield f"    reserved {phase.peak_reserved_bytes:,}"
            if phase.device_used_bytes is not None:
                yield f"    used on the device {phase.device_used_bytes:,}"
    if measurement.results:
        yield ""
        for key, value in measurement.results.items():
            exact = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
            size = f"  ({format_bytes(value)})" if key.endswith("_bytes") else ""
            yield f"  {key:<32}{exact:>18}{size}"


def _packages(measurement: Measurement) -> dict[str, str]:
    return {name: version for name, version in measurement.versions.items() if name != "python"}


def _parameters(measurement: Measurement) -> list[str]:
    """Return the first simple parameters; `show` has them all."""
    simple = [f"{key}={_value(value)}" for key, value in measurement.parameters.items() if not isinstance(value, dict)]
    left = len(measurement.parameters) - len(simple[:_SHOWN_PARAMETERS])
    return [*simple[:_SHOWN_PARAMETERS], *([f"{left} more"] if left else [])]


def _value(value: Any) -> str:  # noqa: ANN401 (JSON)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return str(value)


def _indented(text: str) -> list[str]:
    return wrap(
        text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=True, break_on_hyphens=False
    )


def _labelled(label: str, text: str) -> list[str]:
    return wrap(
        text,
        _WIDTH,
        initial_indent=f"  {label:<12}",
        subsequent_indent=" " * 14,
        break_long_words=True,
        break_on_hyphens=False,
    )
