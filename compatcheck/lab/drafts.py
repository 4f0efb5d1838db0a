"""Draft rules from the changes a sweep found: range, numbers and evidence filled in, the cause left to a person."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.lab.evidence.files import write_measurements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.release_series import Series, SeriesChange


def write_drafts(
    directory: str,
    package: str,
    groups: Sequence[Sequence[SeriesChange]],
    results: Mapping[str, Sequence[Measurement]],
) -> list[str]:
    """Write a draft rule, and the measurements behind it, for every growth.

    Args:
        directory: where ``rules/<package>/`` and ``fixtures/measurements/`` are made.
        package: whose releases were swept.
        groups: changes that belong together; those that shrink end a range and get no rule of their own.
        results: release → measurements.

    Returns:
        The rule files written.
    """
    written = []
    for group in groups:
        change = max(group, key=lambda one: one.difference)
        if change.difference <= 0:
            continue
        series = change.series
        slug = _slug(f"{series.probe}-{series.metric.removesuffix('_bytes')}-grows-in-{change.after}")
        end = find_end(change)
        sides = [version for version in (change.before, change.after, end) if version is not None]
        supporting = [
            measured
            for version in sides
            for measured in results[version]
            if measured.probe == series.probe
            and any(dict(measured.parameters) == dict(one.series.parameters) for one in group)
        ]
        evidence = Path("fixtures") / "measurements" / series.probe / f"{slug}.jsonl"
        (Path(directory) / evidence).parent.mkdir(parents=True, exist_ok=True)
        write_measurements(str(Path(directory) / evidence), supporting)
        rule = Path(directory) / "rules" / package / f"{slug}.yaml"
        rule.parent.mkdir(parents=True, exist_ok=True)
        rule.write_text(
            _rule(package, group, change, end, evidence.as_posix(), list(series.values)[-1]), encoding="utf-8"
        )
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


def _rule(
    package: str, group: Sequence[SeriesChange], change: SeriesChange, end: str | None, evidence: str, newest: str
) -> str:
    series = change.series
    span = f">={change.after}" + (f",<{end}" if end else "")
    cases = "; ".join(
        f"{json.dumps(dict(one.series.parameters), sort_keys=True)}: "
        f"{one.series.values[one.before]:,.6g} -> {one.series.values[one.after]:,.6g}"
        for one in group[:20]
    )
    lines = [
        f"title: {series.probe} measures a higher {series.metric} from {package} {change.after}",
        "kind: regression",
        "status: draft",
        f"reason: found by a sweep between {change.before} and {change.after}; nobody has read the cause in the source yet",
        f'affected: {{{package}: "{span}"}}',
        *([] if end else [f'checked_through: {{{package}: "{newest}"}}']),
        "impact:",
        "  effect: memory",
        "  memory: device",
        "  scope: rank",
        f"  phase: {_phase(series.metric)}",
        "confidence: measured",
        f"verifiable: [{series.backend}]",
        "what: >-",
        f"  The probe {series.probe} measures more {series.metric} in {change.after} than in {change.before}.",
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
