"""What a look at new releases found: lines for a terminal, and a page for the maintainers of a package."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compatcheck.lab.measurement import Measurement, show_parameter
from compatcheck.lab.reporters.measurement import describe_versions, show_exactly, show_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.release_series import SeriesChange

MOST_ROWS = 12
"""Changes that a page has room for."""


_DOUBTS = {"both": "; only together with what moved beside it", "unknown": "; not known whose"}
"""Cause → what is added where a change is not shown to be the package's own."""


def describe_change(change: SeriesChange, defaults: Mapping[str, object]) -> str:
    """Say what grew, in which run, by how much, and that it may be another package's or does not last."""
    metric = change.series.metric
    run = describe_run(change.series.parameters, defaults)
    before, after = (show_quantity(metric, value) for value in change.sides)
    doubt = _DOUBTS.get(change.attribution.cause, "") if change.attribution is not None else ""
    if change.recheck is not None and not change.recheck.holds:
        doubt = f"; no flag: {change.recheck.describe(change.before, partial(_show, metric=metric))}"
    return f"{change.series.probe} {run} {metric}: {before} -> {after}{doubt}"


def describe_run(parameters: Mapping[str, object], defaults: Mapping[str, object]) -> str:
    """Name the parameters of a run that are not the defaults."""
    changed = [f"{name}={show_parameter(value)}" for name, value in parameters.items() if defaults.get(name) != value]
    return " ".join(changed) or "(defaults)"


def format_upstream(  # noqa: PLR0913 (what a page says)
    package: str,
    changes: Sequence[SeriesChange],
    defaults: Mapping[str, Mapping[str, object]],
    measurement: Measurement,
    repository: str | None,
    script: str,
    *,
    title: str,
) -> str:
    """Format a page for the maintainers, in Markdown: what grew, whose it is, and a script that is folded.

    Args:
        package: theirs.
        changes: what grew in one release, the greatest first; all are the package's own.
        defaults: probe → its default parameters.
        measurement: of the newer release, of the first change.
        repository: address of the package's repository, for a comparison of the two sides.
        script: measures the first change without compatcheck.
        title: of the probe of the first change.
    """
    first = changes[0]
    series, attribution = first.series, first.attribution
    before, after = first.sides
    lines = [
        f"# {package} {first.after}: {series.metric} of {describe_run(series.parameters, defaults[series.probe])} grew"
        + (f" by {100 * (after / before - 1):.0f} %" if before > 0 else ""),
        "",
        f"The same run in {first.before} and in {first.after}; bytes are what tensors take. {title}",
        "",
        f"| run | metric | {first.before} | {first.after} |",
        "|---|---|---|---|",
    ]
    for change in changes[:MOST_ROWS]:
        one = change.series
        cells = [describe_run(one.parameters, defaults[one.probe]), one.metric]
        cells += [show_exactly(one.metric, value) for value in change.sides]
        lines.append(f"| {' | '.join(cells)} |")
    if len(changes) > MOST_ROWS:
        lines += ["", f"And {len(changes) - MOST_ROWS} more runs and metrics."]
    lines.append("")
    if attribution is not None and (said := attribution.describe(package, partial(_show, metric=series.metric))):
        lines.append(f"- With everything else held: {said}.")
    if first.recheck is not None and (
        said := first.recheck.describe(first.before, partial(_show, metric=series.metric))
    ):
        lines.append(f"- And {said}.")
    if repository:
        lines.append(f"- {repository}/compare/v{first.before}...v{first.after}")
    lines.append(f"- Measured with {describe_versions(measurement.versions)} on {measurement.device}.")
    if measurement.command:
        lines += ["", "```", measurement.command, "```"]
    lines += ["", "<details><summary>A script that shows it: exit code 1 where it grew</summary>", ""]
    lines += ["```python", script.rstrip(), "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def _show(measurement: Measurement, metric: str) -> str:
    return show_quantity(metric, measurement.metric(metric)) if measurement.succeeded else measurement.status
