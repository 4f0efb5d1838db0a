"""What a bisection found: for a terminal, as JSON, and as a report ready to file upstream."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compatcheck.core.units import format_bytes
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.reporters.measurement import describe_versions, show_exactly, show_quantity, wrap_text
from compatcheck.reporters.figure import draw_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.bisection import Bisection, Transition
    from compatcheck.reporters.figure import Figure

_MOST_PHASES = 16
"""Rows of phases that a page has room for."""


def format_text(found: Bisection) -> str:
    """Format for a terminal: every release tested, then what changed where, then what such a search can miss."""
    lines = [f"{found.probe} over {found.package}: {found.metric}", ""]
    if found.criterion is not None:
        lines += [*wrap_text(found.criterion, "  "), ""]
    elif found.predicted is not None:
        allowed = (
            f", bad above {show_quantity(found.metric, found.predicted + found.tolerance)}" if found.tolerance else ""
        )
        lines += [f"  healthy: {show_quantity(found.metric, found.predicted)}{allowed}", ""]
    width = max((len(one.version) for one in found.tested), default=0)
    for one in found.tested:
        detail = one.reason or "" if one.verdict == "skipped" else show_quantity(found.metric, one.value)
        start = f"  {one.version:<{width}}  {one.verdict:<7}"
        lines += wrap_text(f"{start}  {detail}".rstrip(), "", " " * (len(start) + 2))
    lines.append("")
    for transition in found.transitions:
        lines += wrap_text(describe_transition(transition), "  ")
        lines += wrap_text(describe_attribution(found, transition), "    ")
    if not found.transitions:
        verdicts = {one.verdict for one in found.tested} - {"skipped"}
        lines.append(f"  all tested releases are {verdicts.pop()}" if verdicts else "  no release could be tested")
    lines += [line for limit in describe_limits(found) for line in wrap_text(limit, "  ")]
    return "\n".join(lines) + "\n"


def draw_history(found: Bisection) -> list[Figure]:
    """Draw the metric over the releases that could be tested, as steps."""
    points = [(one.version, one.value) for one in found.tested if one.value is not None]
    title = f"{found.probe} over {found.package}: {found.metric.replace('_', ' ')}"
    return [draw_steps("history", title, points, partial(show_quantity, found.metric))] if points else []


def describe_transition(transition: Transition) -> str:
    """Say between which releases something changed."""
    text = {
        "introduced": f"introduced in {transition.after} ({transition.before} is good)",
        "fixed": f"fixed in {transition.after} ({transition.before} is bad)",
        "lowered": f"less than predicted from {transition.after} on ({transition.before} is as predicted)",
        "raised": f"as predicted from {transition.after} on ({transition.before} measures less)",
    }[transition.kind]
    if transition.between:
        text += f", or in {', '.join(transition.between)}, which could not be tested"
    return text


def describe_attribution(found: Bisection, transition: Transition) -> str:
    """Say what else moved and whose the change is; empty where nothing else did."""
    if transition.attribution is None:
        return ""
    return transition.attribution.describe(found.package, lambda one: _show(found, one))


def _show(found: Bisection, measurement: Measurement) -> str:
    return (
        show_quantity(found.metric, measurement.metric(found.metric)) if measurement.succeeded else measurement.status
    )


def describe_limits(found: Bisection) -> list[str]:
    """Say what was not looked at and what that can hide."""
    lines = []
    if found.untested:
        many = len(found.untested) > 1
        lines.append(
            f"{len(found.untested)} release{'s' if many else ''} between two of the same verdict "
            f"{'were' if many else 'was'} not tested: a change that was undone there is not seen "
            f"(--depth all tests {'them' if many else 'it'})"
        )
    if found.older:
        lines.append(found.older)
    return lines


def to_json(found: Bisection) -> dict[str, Any]:
    """Return the bisection as JSON data; ``from`` and ``to`` are the ends of an interval."""
    plain = [replace(one, attribution=None) for one in found.transitions]
    data = asdict(replace(found, transitions=tuple(plain)))
    for one, row in zip(found.transitions, data["transitions"], strict=True):
        value = partial(Measurement.metric, name=found.metric)
        row["attribution"] = one.attribution and one.attribution.to_json(value)
    data["intervals"] = [
        {"from": interval.first, "to": interval.last, "verdict": interval.verdict} for interval in found.intervals
    ]
    return data


def format_upstream(
    found: Bisection,
    *,
    title: str,
    measurements: Mapping[str, Measurement],
    repository: str | None,
    script: str,
) -> str:
    """Format a report for the maintainers of the package, in Markdown: a page, and a script that is folded.

    Args:
        found: the bisection, with the changes that are the package's own.
        title: what the probe measures.
        measurements: those of the releases on both sides of each change.
        repository: address of the package's repository, for a comparison of the two sides.
        script: a program that measures the same without compatcheck.
    """
    changes = "; ".join(describe_transition(transition) for transition in found.transitions) or "no change found"
    lines = [f"# {found.package}: {changes}", "", title, ""]
    lines += [f"| release | {found.metric} | |", "|---|---|---|"]
    for one in found.tested:
        if one.version in measurements:
            lines.append(f"| {one.version} | {show_exactly(found.metric, one.value)} | {one.verdict} |")
    lines.append("")
    if found.criterion is None and found.predicted is not None:
        lines += [f"A healthy release measures {show_exactly(found.metric, found.predicted)}.", ""]
    for transition in found.transitions:
        if said := describe_attribution(found, transition):
            lines.append(f"- {transition.after}: {said}.")
        if repository:
            ends = [_tag(version) for version in (transition.before, transition.after)]
            lines.append(f"- {transition.after}: {repository}/compare/{'...'.join(ends)}")
    lines += [f"- {line}" for line in describe_limits(found)]
    if measurements:
        lines += _phase_table(measurements)
        first = _first_bad(found, measurements)
        lines += [
            "",
            f"Measured with {describe_versions(first.versions)} on {first.device}; counted: {first.accounting}.",
        ]
        lines += ["", "```", first.command, "```"] if first.command else []
    lines += ["", "<details><summary>A script that shows it: exit code 0 is a healthy release, 1 is not</summary>", ""]
    lines += ["```python", script.rstrip(), "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def _tag(version: str) -> str:
    """Return the tag that a release has by custom; a commit is named by itself."""
    return f"v{version}" if "." in version else version


def _first_bad(found: Bisection, measurements: Mapping[str, Measurement]) -> Measurement:
    """Return the measurement of the oldest bad release, which a report is about; the first one where none is bad."""
    bad = {one.version for one in found.tested if one.verdict == "bad"}
    return next((one for version, one in measurements.items() if version in bad), next(iter(measurements.values())))


def _phase_table(measurements: Mapping[str, Measurement]) -> list[str]:
    """Return a table of the phases, or nothing where the probe has none."""
    rows = []
    for release, measurement in measurements.items():
        for phase in measurement.phases:
            peak = "" if phase.peak_allocated_bytes is None else format_bytes(phase.peak_allocated_bytes)
            operator = phase.peak_operator or ""
            rows.append(f"| {release} | {phase.name} | {peak} | {format_bytes(phase.live_bytes)} | {operator} |")
    head = ["", "| release | phase | peak | at its end | operator at the peak |", "|---|---|---|---|---|"]
    return [*head, *rows] if 0 < len(rows) <= _MOST_PHASES else []
