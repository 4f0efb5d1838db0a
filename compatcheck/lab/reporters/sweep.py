"""What a sweep over releases measured: changes first, then each series as runs of equal values."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from compatcheck.lab.measurement import Measurement, show_parameter
from compatcheck.lab.reporters.measurement import show_quantity, wrap_text
from compatcheck.reporters.figure import draw_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.release_series import Series, SeriesChange
    from compatcheck.reporters.figure import Figure

    Groups = Sequence[Sequence[SeriesChange]]
    Results = Mapping[str, Sequence[Measurement]]

_EXAMPLES = 6
"""So many parameter sets of one change are named."""


def format_text(package: str, series: Sequence[Series], groups: Groups, results: Results) -> str:
    """Format for a terminal."""
    varying = _varying(series)
    lines = []
    for group in groups:
        first = group[0]
        word = "grew" if first.difference > 0 else "shrank"
        lines.append(f"{package} {first.before} -> {first.after}: {first.series.probe} {first.series.metric} {word}")
        for change in group[:_EXAMPLES]:
            values = change.series.values
            before, after = (
                show_quantity(change.series.metric, values[version]) for version in (change.before, change.after)
            )
            ratio = "" if change.ratio is None else f" (x{change.ratio:.3g})"
            lines.append(f"  {_parameters(change.series, varying)}: {before} -> {after}{ratio}")
            for said in (_attribution(package, change), _second_look(package, change)):
                lines += wrap_text(said, "    ")
        if len(group) > _EXAMPLES:
            lines.append(f"  and {len(group) - _EXAMPLES} more")
    if groups:
        lines.append("")
    for one in series:
        runs = "; ".join(f"{span} {show_quantity(one.metric, value)}" for span, value in _runs(one, results))
        healthy = "" if one.predicted is None else f" (healthy {show_quantity(one.metric, one.predicted)})"
        lines.append(f"{one.probe} {_parameters(one, varying)} {one.metric}{healthy}\n  {runs}")
    lines += _without_result(results)
    return "\n".join(lines) + "\n"


def draw_series(package: str, groups: Groups) -> list[Figure]:
    """Draw each series that changes somewhere as steps over the releases of a package."""
    changed = list({id(change.series): change.series for group in groups for change in group}.values())
    varying = _varying(changed)
    return [
        draw_steps(
            f"series-{index}",
            f"{one.probe} {_parameters(one, varying)} over {package}: {one.metric.replace('_', ' ')}",
            list(one.values.items()),
            partial(show_quantity, one.metric),
        )
        for index, one in enumerate(changed)
    ]


def format_markdown(package: str, series: Sequence[Series], groups: Groups, results: Results) -> str:
    """Format as a table of changes and a table of series."""
    varying = _varying(series)
    lines = [f"# Sweep over {len(results)} releases of {package}", "", "## Changes", ""]
    lines += ["| between | probe | metric | parameters | before | after | whose |", "|---|---|---|---|---|---|---|"]
    for group in groups:
        for change in group:
            one = change.series
            cells = [
                f"{change.before} → {change.after}",
                one.probe,
                one.metric,
                _parameters(one, varying),
                show_quantity(one.metric, one.values[change.before]),
                show_quantity(one.metric, one.values[change.after]),
                "; ".join(
                    filter(None, (_attribution(package, change) or f"{package}'s own", _second_look(package, change)))
                ),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Series", "", "| probe | parameters | metric | healthy | measured |", "|---|---|---|---|---|"]
    for one in series:
        runs = "; ".join(f"{span}: {show_quantity(one.metric, value)}" for span, value in _runs(one, results))
        cells = [one.probe, _parameters(one, varying), one.metric, show_quantity(one.metric, one.predicted), runs]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"- {line}" for line in _without_result(results))]
    return "\n".join(lines) + "\n"


def format_json(package: str, series: Sequence[Series], groups: Groups, results: Results) -> str:
    """Format as JSON: series with every value, and changes."""
    data: dict[str, Any] = {
        "package": package,
        "releases": list(results),
        "series": [asdict(one) for one in series],
        "changes": [
            {
                "probe": change.series.probe,
                "parameters": dict(change.series.parameters),
                "metric": change.series.metric,
                "before": change.before,
                "after": change.after,
                "difference": change.difference,
                "attribution": change.attribution
                and change.attribution.to_json(partial(Measurement.metric, name=change.series.metric)),
                "lasts": None if change.recheck is None else change.recheck.holds,
            }
            for group in groups
            for change in group
        ],
        "without_result": _without_result(results),
    }
    return json.dumps(data, indent=1) + "\n"


def _attribution(package: str, change: SeriesChange) -> str:
    """Say what else moved and whose the change is; empty where nothing else did."""
    return (
        change.attribution.describe(package, partial(_show, metric=change.series.metric)) if change.attribution else ""
    )


def _second_look(package: str, change: SeriesChange) -> str:
    """Say what a second look at a growth showed; empty where there was none."""
    show = partial(_show, metric=change.series.metric)
    return change.recheck.describe(f"{package} {change.before}", show) if change.recheck else ""


def _show(measurement: Measurement, metric: str) -> str:
    return show_quantity(metric, measurement.metric(metric)) if measurement.succeeded else measurement.status


def _runs(series: Series, results: Results) -> list[tuple[str, float]]:
    """Join neighbouring releases of one value, ``4.30.0–4.45.2``, and say where some of them have no result."""
    runs = []
    releases = list(results) or list(series.values)
    for value, group in groupby(series.values.items(), key=lambda item: item[1]):
        versions = [version for version, _ in group]
        span = versions[0] if len(versions) == 1 else f"{versions[0]}–{versions[-1]}"
        tried = releases.index(versions[-1]) - releases.index(versions[0]) + 1
        runs.append((span if tried == len(versions) else f"{span} ({len(versions)} of {tried})", value))
    return runs


def _varying(series: Sequence[Series]) -> dict[str, list[str]]:
    """Return, for each probe, the parameters that tell its series apart, or from the probe's defaults."""
    values: dict[str, dict[str, set[str]]] = {}
    for one in series:
        for name, value in one.parameters.items():
            values.setdefault(one.probe, {}).setdefault(name, set()).add(json.dumps(value))
    changed = {(one.probe, name) for one in series for name in one.changed}
    return {
        probe: [name for name, found in names.items() if len(found) > 1 or (probe, name) in changed]
        for probe, names in values.items()
    }


def _parameters(series: Series, varying: Mapping[str, Sequence[str]]) -> str:
    shown = (f"{name}={show_parameter(series.parameters[name])}" for name in varying.get(series.probe, ()))
    return " ".join(shown) or "(defaults)"


def _without_result(results: Results) -> list[str]:
    """Say which releases gave no result, and why, each reason once."""
    reasons: dict[str, dict[str, None]] = {}
    for version, measured in results.items():
        for one in measured:
            if not one.succeeded:
                reasons.setdefault(f"{one.probe}: {one.status}: {(one.reason or '')[:160]}", {})[version] = None
    return [f"{reason} ({', '.join(versions)})" for reason, versions in reasons.items()]
