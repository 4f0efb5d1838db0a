"""Draft rules from the changes a sweep found: range, numbers and evidence filled in, the cause left to a person."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.evidence.files import write_measurements, write_whole
from compatcheck.lab.sweep import group_changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.release_series import Series, SeriesChange


class _Span(NamedTuple):
    """The releases a draft is about."""

    affected: str
    unverified: str
    """Between a measured bad and a measured good release, and not measured."""
    sides: tuple[str, ...]
    """Measured releases that the span rests on."""
    newest: str | None
    """The newest release looked at, where no end is known."""
    words: str


def write_drafts(
    directory: str,
    package: str,
    changes: Sequence[SeriesChange],
    results: Mapping[str, Sequence[Measurement]],
    known: Sequence[str],
) -> list[str]:
    """Write a draft rule, and the measurements behind it, for every growth, and for what was high from the first release on.

    Args:
        directory: where ``rules/<package>/`` and ``fixtures/measurements/`` are made.
        package: whose releases were swept.
        changes: all that were found; one that was not shown to be the package's own gives no rule and ends none.
        results: release → measurements.
        known: the releases that there are, measured or not, oldest first.

    Returns:
        The rule files written.
    """
    written = []
    own = [change for change in changes if change.is_own]
    for group in group_changes(own):
        change = max(group, key=lambda one: abs(one.difference))
        series = change.series
        span = _describe_growth(change, own, known) if change.difference > 0 else _describe_end(change, known)
        if span is None:
            continue
        what = f"grows-in-{change.after}" if change.difference > 0 else f"is-higher-until-{change.after}"
        slug = _slug(f"{series.probe}-{series.metric.removesuffix('_bytes')}-{what}")
        evidence = Path("fixtures") / "measurements" / series.probe / f"{slug}.jsonl"
        write_measurements(str(Path(directory) / evidence), _supporting(group, span, results))
        rule = Path(directory) / "rules" / package / f"{slug}.yaml"
        write_whole(str(rule), _rule(package, group, change, span, evidence.as_posix()))
        written.append(str(rule))
    return written


def find_end(change: SeriesChange) -> str | None:
    """Return the first later release that is back at the value before the change, or None while it lasts."""
    series: Series = change.series
    healthy = series.values[change.before]
    versions = list(series.values)
    for version in versions[versions.index(change.after) + 1 :]:
        if series.values[version] <= healthy or not series.tells_apart(series.values[version], healthy):
            return version
    return None


def _describe_growth(change: SeriesChange, own: Sequence[SeriesChange], known: Sequence[str]) -> _Span:
    versions = list(change.series.values)
    gap = _gap(change.before, change.after, known)
    end = find_end(change)
    last = versions[versions.index(end) - 1 if end else -1]
    if end is None or not any(one.series is change.series and one.after == end for one in own):
        return _Span(f">={change.after}", gap, (change.before, change.after), last, f"from {change.after} on")
    later = _gap(last, end, known)
    affected = f">={change.after},<={last}" if later else f">={change.after},<{end}"
    unverified = " || ".join(filter(None, (gap, later)))
    return _Span(affected, unverified, (change.before, change.after, end), None, f"from {change.after} until {end}")


def _describe_end(change: SeriesChange, known: Sequence[str]) -> _Span | None:
    """Return the span of what was high from the first measured release on; None for the end of a growth that was seen."""
    series, versions = change.series, list(change.series.values)
    healthy = series.values[change.after]
    earlier = versions[: versions.index(change.after)]
    if any(series.values[one] <= healthy or not series.tells_apart(series.values[one], healthy) for one in earlier):
        return None
    gap = _gap(change.before, change.after, known)
    affected = f">={earlier[0]},<={change.before}" if gap else f">={earlier[0]},<{change.after}"
    words = f"until {change.after}, and already in {earlier[0]}, the oldest release measured"
    return _Span(affected, gap, (change.before, change.after), None, words)


def _gap(before: str, after: str, known: Sequence[str]) -> str:
    """Return the range between two releases, empty where none is known to lie there."""
    if before in known and after in known and known.index(after) - known.index(before) == 1:
        return ""
    return f">{before},<{after}" if before in known and after in known else ""


def _supporting(
    group: Sequence[SeriesChange], span: _Span, results: Mapping[str, Sequence[Measurement]]
) -> list[Measurement]:
    """Return what a draft rests on: pairs with all else held where something else moved, else the releases themselves."""
    found = []
    for change in group:
        series, attribution = change.series, change.attribution
        held = attribution.held if attribution else ()
        found += [one for pair in held if change.shown_by(pair) for one in (pair.before, pair.after)]
        found += [
            measured
            for version in span.sides
            if not held or version not in {change.before, change.after}
            for measured in results[version]
            if measured.probe == series.probe and dict(measured.parameters) == dict(series.parameters)
        ]
    return list({id(one): one for one in found}.values())


def _rule(package: str, group: Sequence[SeriesChange], change: SeriesChange, span: _Span, evidence: str) -> str:
    series = change.series
    cases = "; ".join(
        f"{json.dumps(dict(one.series.parameters), sort_keys=True)}: {one.sides[0]:,.6g} -> {one.sides[1]:,.6g}"
        for one in group[:20]
    )
    moved = change.attribution.moved if change.attribution else {}
    held = f" with {', '.join(list(moved)[:3])} held" if moved else ""
    lines = [
        f"title: {series.probe} measures a higher {series.metric} {span.words}",
        "kind: regression",
        "status: draft",
        f"reason: found by a sweep between {change.before} and {change.after}{held}; nobody has read the cause in the source yet",
        f'affected: {{{package}: "{span.affected}"}}',
        *([f'unverified: {{{package}: "{span.unverified}"}}'] if span.unverified else []),
        *([f'checked_through: {{{package}: "{span.newest}"}}'] if span.newest else []),
        "impact:",
        "  effect: memory",
        "  memory: device",
        "  scope: rank",
        f"  phase: {_phase(series.metric)}",
        "confidence: measured",
        f"verifiable: [{series.backend}]",
        "what: >-",
        f"  The probe {series.probe} measures more {series.metric} {span.words}.",
        "why: >-",
        "  Not known yet: read what changed between the two releases.",
        "known_problems: >-",
        f"  Cases measured (before, after): {cases}",
        "remedies: []",
        "references: []",
        f"probe: {series.probe}",
        f"evidence: [{evidence}]",
        "examples: {match: [], no_match: [], unknown: []}",
    ]
    return "\n".join(lines) + "\n"


def _phase(metric: str) -> str:
    first = metric.partition(".")[0]
    return first if first in {"load", "forward", "backward", "step"} else "whole"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
