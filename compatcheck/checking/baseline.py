"""What stood before a change: the JSON report of an earlier check, laid over that of now, so that a gate is about the change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.core.json_file import read_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.report import SEVERITIES, severity_rank
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.advisory import Advisory
    from compatcheck.core.report import Finding, Report, SubjectReport

_RANKS = {"possible": 0, "affected": 1}
_LINE = re.compile(r":\d+\b")
"""A line of a place: it moves with what is written above it."""
_BEHIND_FILE = re.compile(r"(?::\d+\b| \().*", re.DOTALL)
"""Line and key of a place."""


class Baseline(NamedTuple):
    """The findings, advisories and unread inputs of an earlier report."""

    subjects: frozenset[str]
    findings: Mapping[tuple[str, str, str], tuple[int, int]]
    """Subject, rule and role → how certain it was, and the worst severity that does not exceed it now."""
    advisories: frozenset[tuple[str, str, str]]
    """Subject, package and id."""
    skipped: frozenset[tuple[str, str]]
    """Place without its line, and reason."""
    lists: frozenset[str]
    """Files that packages were read from."""
    runs: Mapping[str, frozenset[str]]
    """Subjects of which packages were known → the files that configured them."""

    def leave_entered(self, report: Report, *, fail_unread: bool) -> Report:
        """Leave of a report what was not there before, and count the rest; the exit code is judged by who calls this.

        What was read before and cannot be any more entered, too: a list that states nothing now, a run without its list.

        Args:
            report: of now.
            fail_unread: whether these count as if they were named.
        """
        gone = self.subjects - {subject.id for subject in report.subjects}
        findings = tuple(finding for finding in report.findings if not self._held(finding, gone))
        entered = (entry for entry in report.skipped if _key_of(entry) not in self.skipped)
        emptied = (
            entry._replace(passes=False, named=entry.named or fail_unread) if entry.source.path in self.lists else entry
            for entry in entered
        )
        bare = [self._find_bare(subject, gone, named=fail_unread) for subject in report.subjects]
        lost = {
            entry.source.path: entry for entry in bare if entry is not None
        }  # which says more than that nothing was checked
        skipped = (*(entry for entry in emptied if entry.source.path not in lost), *lost.values())
        audit, stood = report.audit, len(report.findings) - len(findings)
        if audit is not None:
            advisories = tuple(entry for entry in audit.advisories if not self._held_advisory(entry, gone))
            stood += len(audit.advisories) - len(advisories)
            audit = audit._replace(advisories=advisories)
        return report._replace(findings=findings, skipped=skipped, audit=audit, stood_before=stood)

    def _find_bare(self, subject: SubjectReport, gone: Iterable[str], *, named: bool) -> Skipped | None:
        """Say of a run that its packages are no longer known, where they were under a name that is gone."""
        if subject.packages or subject.id in self.subjects:
            return None
        facts = (fact for _, fact in subject.facts if fact.origin == "configuration" and fact.sources)
        files = dict.fromkeys(_file_of(str(fact.sources[0])) for fact in facts)
        before = next((name for name in gone if not self.runs.get(name, frozenset()).isdisjoint(files)), None)
        if before is None:
            return None
        reason = f"no package is known of this run any more; before it was {before}"
        hint = "restore its list, or name list and configuration as a run of the policy"
        return Skipped(Source(next(iter(files))), reason, hint, named=named)

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
    subjects = report["subjects"]
    return Baseline(
        frozenset(str(subject["id"]) for subject in subjects),
        {
            (str(entry["subject"]), str(entry["rule_id"]), str(entry["role"])): (
                _RANKS[entry["status"]],
                _weigh(entry),
            )
            for entry in report["findings"]
        },
        frozenset((str(one["subject"]), str(one["package"]), str(one["id"])) for one in report["advisories"]),
        frozenset((_LINE.sub("", str(one["source"])), str(one["reason"])) for one in report["skipped"]),
        frozenset(_file_of(str(one["source"])) for subject in subjects for one in subject["environment"]["packages"]),
        {
            str(subject["id"]): frozenset(
                _file_of(str(fact["source"])) for fact in subject["facts"] if fact["origin"] == "configuration"
            )
            for subject in subjects
            if subject["environment"]["packages"]
        },
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


def _file_of(place: str) -> str:
    return _BEHIND_FILE.sub("", place)
