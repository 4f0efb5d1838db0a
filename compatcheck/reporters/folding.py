"""Fold what a report says of many subjects: one entry per rule, package, key or reason, with the places it holds for."""

import re
from collections import Counter
from collections.abc import Iterable

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.report import Finding, Report, severity_rank
from compatcheck.core.source import Skipped

_QUOTED = r"'[^']*'|\"[^\"]*\""
_GUESS = r"(?:; )?did you mean .*"


class FoldedFinding(NamedTuple):
    """One rule with every subject it matches alike."""

    finding: Finding
    """The worst of them."""
    subjects: tuple[str, ...]


class FoldedSkips(NamedTuple):
    """Inputs that were left out for one reason."""

    first: Skipped
    others: tuple[Skipped, ...]


def fold_findings(findings: Iterable[Finding]) -> list[FoldedFinding]:
    """Group findings that are not waived by rule, role and status; the worst groups come first."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        if finding.suppressed is None:
            groups.setdefault((finding.rule_id, finding.role, finding.status), []).append(finding)
    folded = [
        FoldedFinding(_choose(group), tuple(dict.fromkeys(finding.subject for finding in group)))
        for group in groups.values()
    ]
    return sorted(folded, key=_order)


def _choose(group: list[Finding]) -> Finding:
    """Return the worst finding; among equals the one with the most common open questions."""
    questions = Counter(finding.needs for finding in group)
    return max(group, key=lambda finding: (*_weight(finding), questions[finding.needs]))


def _order(entry: FoldedFinding) -> tuple[int, ...]:
    severity, size = _weight(entry.finding)
    return (-severity, -size, len(entry.finding.needs), -len(entry.subjects))


def _weight(finding: Finding) -> tuple[int, int]:
    expected = finding.impact.expected_bytes if finding.impact is not None else None
    return severity_rank(finding.severity), expected or 0


def fold_skips(skipped: Iterable[Skipped]) -> list[FoldedSkips]:
    """Group inputs by why they were left out; names that a reason quotes and guesses at others do not count."""
    groups: dict[tuple[str, str], list[Skipped]] = {}
    for entry in skipped:
        hint = re.sub(_QUOTED, "", re.sub(_GUESS, "", entry.hint or ""))
        groups.setdefault((re.sub(_QUOTED, "", entry.reason), hint), []).append(entry)
    return [FoldedSkips(group[0], tuple(group[1:])) for group in groups.values()]


def fold_unknown_versions(report: Report) -> list[tuple[str, int, int]]:
    """List packages of unknown version with the most rules that depend on them and how many subjects that concerns."""
    counts: dict[str, list[int]] = {}
    for subject in report.subjects:
        for package, count in subject.folded:
            counts.setdefault(package, []).append(count)
    return [(package, max(values), len(values)) for package, values in sorted(counts.items())]


def shorten(names: Iterable[str], limit: int = 3) -> str:
    """Join names, the first few only."""
    names = list(names)
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
