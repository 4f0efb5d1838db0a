"""Compare two reports about the same run: a pure function of what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.difference import ENTERED, STAYED, Difference, FactChange, FindingChange, PackageChange
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.facts import TRAITS
from compatcheck.core.summary import worst_first

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from compatcheck.core.facts import Fact
    from compatcheck.core.report import Finding, Report

_KIND_ORDER = (ENTERED, STAYED)


def compare(names: tuple[str, str], before: Report, after: Report, known: Collection[str]) -> Difference:
    """Compare two reports of one subject each."""
    findings = compare_findings(before.findings, after.findings)
    return Difference(
        names=names,
        before=before,
        after=after,
        packages=compare_packages(before, after, known),
        findings=findings,
        facts=compare_facts(before, after),
        exit_code=judge(before, after, findings),
    )


def compare_packages(before: Report, after: Report, known: Collection[str]) -> tuple[PackageChange, ...]:
    """List the packages whose version or specifier differs, by name."""
    old, new = _packages(before), _packages(after)
    return tuple(
        PackageChange(name, old.get(name), new.get(name), name in known)
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) or (name in old) != (name in new)
    )


def _packages(report: Report) -> dict[str, str]:
    return {name: version or "" for subject in report.subjects for name, version, _ in subject.packages}


def compare_findings(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[FindingChange, ...]:
    """Pair findings by rule and role."""
    old = {(finding.rule_id, finding.role): finding for finding in before}
    new = {(finding.rule_id, finding.role): finding for finding in after}
    return tuple(sorted((FindingChange(old.get(key), new.get(key)) for key in {**old, **new}), key=_order))


def _order(change: FindingChange) -> tuple[object, ...]:
    kind = _KIND_ORDER.index(change.kind) if change.kind in _KIND_ORDER else len(_KIND_ORDER)
    return (not change.newly_fails, kind, not change.changed, *worst_first(change.finding)[:-1])


def compare_facts(before: Report, after: Report) -> tuple[FactChange, ...]:
    """List the facts that both sides know with another value, by name."""
    old, new = _facts(before), _facts(after)
    return tuple(
        FactChange(role, old[role, name], new[role, name])
        for role, name in sorted(old.keys() & new.keys(), key=lambda key: (key[1], key[0]))
        if old[role, name].value != new[role, name].value
    )


def _facts(report: Report) -> dict[tuple[str, str], Fact]:
    return {
        (role, fact.name): fact
        for subject in report.subjects
        for role, fact in subject.facts
        if not fact.name.startswith(TRAITS)
    }


def judge(before: Report, after: Report, findings: Iterable[FindingChange]) -> int:
    """Return the exit code: what newly fails wins over unreadable inputs; a side without a package was not compared."""
    if any(change.newly_fails for change in findings):
        return EXIT_FINDINGS
    skipped = (*before.skipped, *after.skipped)
    if any(entry.named for entry in skipped):
        return EXIT_UNREADABLE_INPUT
    if not all(any(subject.packages for subject in report.subjects) for report in (before, after)):
        return EXIT_NOTHING_TO_CHECK
    return EXIT_CLEAN
