"""What stood before a change: the JSON report of an earlier check, laid over that of now, so that a gate is about the change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.errors import UsageError
from compatcheck.core.json_file import read_json
from compatcheck.core.report import SEVERITIES, severity_rank
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.advisory import Advisory
    from compatcheck.core.report import Finding, Report
    from compatcheck.core.source import Skipped

_RANKS = {"possible": 0, "affected": 1}
_LINE = re.compile(r":\d+\b")
"""A line of a place: it moves with what is written above it."""


class Baseline(NamedTuple):
    """The findings, advisories and unread inputs of an earlier report."""

    subjects: frozenset[str]
    findings: Mapping[tuple[str, str, str], tuple[int, int]]
    """Subject, rule and role → how certain it was, and the worst severity that does not exceed it now."""
    advisories: frozenset[tuple[str, str, str]]
    """Subject, package and id."""
    skipped: frozenset[tuple[str, str]]
    """Place without its line, and reason."""

    def leave_entered(self, report: Report) -> Report:
        """Leave of a report what was not there before, and count the rest; the exit code is judged by who calls this."""
        gone = self.subjects - {subject.id for subject in report.subjects}
        findings = tuple(finding for finding in report.findings if not self._held(finding, gone))
        skipped = tuple(entry for entry in report.skipped if _key_of(entry) not in self.skipped)
        audit, stood = report.audit, len(report.findings) - len(findings)
        if audit is not None:
            entered = tuple(entry for entry in audit.advisories if not self._held_advisory(entry, gone))
            stood += len(audit.advisories) - len(entered)
            audit = audit._replace(advisories=entered)
        return report._replace(findings=findings, skipped=skipped, audit=audit, stood_before=stood)

    def _held(self, finding: Finding, gone: Iterable[str]) -> bool:
        """Tell whether a finding stood before and counts no more than it did.

        Of a subject under a new name, for its files were renamed or others joined it, those whose names are gone tell.
        """
        names = (finding.subject,) if finding.subject in self.subjects else gone
        before = [self.findings.get((name, finding.rule_id, finding.role)) for name in names]
        now = _RANKS[finding.status], severity_rank(finding.severity) if finding.fails else 0
        return any(one is not None and one[0] >= now[0] and one[1] >= now[1] for one in before)

    def _held_advisory(self, advisory: Advisory, gone: Iterable[str]) -> bool:
        names = (advisory.subject,) if advisory.subject in self.subjects else gone
        return any((name, advisory.package, advisory.id) in self.advisories for name in names)


def read_baseline(path: str) -> Baseline:
    """Read the report of an earlier check.

    Raises:
        UsageError: it is none.
        InputError: it cannot be read, or is no JSON.
    """
    value = read_json(path).data
    try:
        return _read(value)
    except (TypeError, KeyError, ValueError, AttributeError):
        hint = "write one with `compatcheck check --output json:FILE`"
        raise UsageError("is no JSON report of a check", source=Source(path), hint=hint) from None


def _read(report: Mapping[str, Any]) -> Baseline:
    return Baseline(
        frozenset(str(subject["id"]) for subject in report["subjects"]),
        {
            (str(entry["subject"]), str(entry["rule_id"]), str(entry["role"])): (
                _RANKS[entry["status"]],
                _weigh(entry),
            )
            for entry in report["findings"]
        },
        frozenset((str(one["subject"]), str(one["package"]), str(one["id"])) for one in report["advisories"]),
        frozenset((_LINE.sub("", str(one["source"])), str(one["reason"])) for one in report["skipped"]),
    )


def _weigh(entry: Mapping[str, Any]) -> int:
    """Return the worst severity that is no more than what stood: any where it failed, none where it was waived or advice.

    Between them is what another `--fail-on` let pass.
    """
    if entry["fails"]:
        return len(SEVERITIES)
    return 0 if entry["suppressed"] or entry["advice"] else severity_rank(entry["severity"])


def _key_of(entry: Skipped) -> tuple[str, str]:
    return _LINE.sub("", str(entry.source)), entry.reason
