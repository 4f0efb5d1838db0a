"""The report as JUnit XML, for continuous-integration servers: a suite per subject, a case per finding.

A finding that fails the run is a failure; one that does not (below ``--fail-on``, possible, waived) is a skipped case that
says why, and an input that could not be read an error when the person named it. A suite never is empty: without findings
it holds one case that says what was looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from compatcheck.core.headline import open_lines
from compatcheck.core.summary import (
    because_text,
    checked_anything,
    clean_text,
    closing_line,
    needs_text,
    size_text,
    summarise,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.advisory import Audit
    from compatcheck.core.report import Finding, Report, SubjectReport
    from compatcheck.core.source import Skipped

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def format_report(report: Report) -> str:
    """Format a report as JUnit XML."""
    suites = [
        _Suite(
            subject.id,
            _subject_cases(subject, [item for item in report.findings if item.subject == subject.id]),
        )
        for subject in report.subjects
    ]
    if report.audit is not None:
        suites.append(_Suite("security", list(_audit_cases(report.audit))))
    nothing = [] if checked_anything(report) else [_nothing_case(report)]
    if report.skipped or nothing:
        suites.append(_Suite("inputs", [*nothing, *map(_skipped_case, report.skipped)]))
    total = [sum(counts) for counts in zip(*(suite.counts() for suite in suites), strict=True)]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    whole = _count_attributes(total, report)
    whole.pop("skipped")  # no attribute of testsuites in the schema of Jenkins
    lines.append(f"<testsuites{_attributes(name='compatcheck', **whole)}>")
    for index, suite in enumerate(suites):
        lines.append(f"  <testsuite{_attributes(name=suite.name, **_count_attributes(suite.counts(), report))}>")
        if index == 0:
            lines += _properties(report)
        lines += [f"    {line}" for case in suite.cases for line in case.lines()]
        if index == 0:
            waivers = (f"waiver: {note}" for note in report.waiver_notes)
            notes = [*open_lines(report, inputs=False), *waivers, closing_line(report)]
            lines.append(f"    <system-out>{_text(chr(10).join(notes))}</system-out>")
        lines.append("  </testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


class _Case:
    """One test case and what became of it: passed, failure, skipped or error."""

    def __init__(
        self, name: str, classname: str, outcome: str, kind: str = "", message: str = "", body: str = ""
    ) -> None:
        self.name = name
        self.classname = classname
        self.outcome = outcome
        self.kind = kind
        self.message = message
        self.body = body

    def lines(self) -> Iterator[str]:
        attributes = _attributes(name=self.name, classname=self.classname, time="0")
        if self.outcome == "passed":
            yield f"<testcase{attributes}/>"
            return
        yield f"<testcase{attributes}>"
        given = {"message": self.message} if self.outcome == "skipped" else {"type": self.kind, "message": self.message}
        yield f"  <{self.outcome}{_attributes(**given)}>{_text(self.body)}</{self.outcome}>"
        yield "</testcase>"


class _Suite:
    def __init__(self, name: str, cases: list[_Case]) -> None:
        self.name = name
        self.cases = cases

    def counts(self) -> tuple[int, int, int, int]:
        """Return the number of cases, failures, errors and skipped cases."""
        outcomes = [case.outcome for case in self.cases]
        return len(outcomes), outcomes.count("failure"), outcomes.count("error"), outcomes.count("skipped")


def _subject_cases(subject: SubjectReport, findings: list[Finding]) -> list[_Case]:
    if findings:
        return [_finding_case(finding) for finding in findings]
    if not subject.is_checkable:
        return [_Case("packages", subject.id, "skipped", message=clean_text(subject))]
    return [_Case(clean_text(subject), subject.id, "passed")]


def _finding_case(finding: Finding) -> _Case:
    name = finding.rule_id if finding.role == "train" else f"{finding.rule_id} ({finding.role})"
    size = size_text(finding.impact)
    title = f"{finding.title} ({size})" if size else finding.title
    if finding.fails:
        return _Case(name, finding.subject, "failure", finding.severity, title, _body(finding))
    if finding.suppressed is not None:
        why = f"waived: {finding.suppressed.reason}"
    elif finding.status == "possible":
        why = f"possible ({finding.severity}), decided by {needs_text(finding.needs)}: {title}"
    else:
        why = f"{finding.severity}, below --fail-on: {title}"
    return _Case(name, finding.subject, "skipped", message=why, body=_body(finding))


def _audit_cases(audit: Audit) -> Iterator[_Case]:
    """Yield a case per advisory, and one per reason why packages were not audited, which is an error when none was."""
    from compatcheck.core.advisory import audit_text, fix_text, fold_unaudited  # noqa: PLC0415 (only with --security)

    for advisory in audit.advisories:
        name = f"{advisory.id} {advisory.package} {advisory.version}"
        title = f"{advisory.package} {advisory.version}: {fix_text(advisory)}"
        lines = [advisory.description, *(f"also {alias}" for alias in advisory.aliases), f"stated at {advisory.source}"]
        body = "\n".join([*lines, *([] if advisory.url is None else [f"see {advisory.url}"])])
        if advisory.fails:
            yield _Case(name, advisory.subject, "failure", "advisory", title, body)
        elif advisory.suppressed is not None:
            yield _Case(name, advisory.subject, "skipped", message=f"waived: {advisory.suppressed.reason}", body=body)
        else:
            yield _Case(name, advisory.subject, "skipped", message=f"does not fail the run: {title}", body=body)
    outcome = "skipped" if audit.failure is None else "error"
    for reason, names in fold_unaudited(audit.unaudited):
        yield _Case(reason, "not audited", outcome, "not audited", ", ".join(names))
    if not (audit.advisories or audit.unaudited):
        yield _Case(audit_text(audit), "security", "passed")


def _body(finding: Finding) -> str:
    lines = [f"{finding.severity.upper()} {finding.status} {finding.rule_id}", finding.message.strip(), ""]
    lines += [f"because {because_text(fact)}" for fact in finding.facts]
    lines += [] if finding.rating is None else [finding.rating]
    lines += [f"assumed {assumption}" for assumption in finding.assumptions]
    for remedy in finding.remedies:
        lines.append(f"fix {remedy.text}" + (f": {remedy.command}" if remedy.command else ""))
    lines += [f"see {reference.url}" for reference in finding.references]
    return "\n".join(lines)


def _skipped_case(entry: Skipped) -> _Case:
    text = entry.reason + (f"; {entry.hint}" if entry.hint else "")
    return _Case(str(entry.source), "not checked", "error" if entry.named else "skipped", "not checked", text)


def _nothing_case(report: Report) -> _Case:
    return _Case("inputs", "not checked", "error", "not checked", f"nothing was checked, exit code {report.exit_code}")


def _properties(report: Report) -> Iterator[str]:
    summary = summarise(report)
    values = {
        "version": report.version,
        "database_id": report.database_id,
        "database_date": report.database_date,
        "database_rules": report.database_rules,
        "findings": summary.findings,
        "affected": summary.affected,
        "possible": summary.possible,
        "waived": summary.waived,
        "failing": summary.failing,
        "not_checked": summary.not_checked,
        "fail_on": report.threshold,
        "strict": str(report.strict).lower(),
        "exit_code": report.exit_code,
        "policy": report.policy or "",
    }
    yield "    <properties>"
    yield from (f"      <property{_attributes(name=name, value=str(value))}/>" for name, value in values.items())
    yield "    </properties>"


def _count_attributes(counts: tuple[int, ...] | list[int], report: Report) -> dict[str, str]:
    names = ("tests", "failures", "errors", "skipped")
    values = {name: str(count) for name, count in zip(names, counts, strict=True)}
    return {**values, "time": f"{report.seconds:.3f}"}


def _attributes(**values: str) -> str:
    return "".join(f" {name}={quoteattr(_NOT_XML.sub('�', value))}" for name, value in values.items())


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("�", text))
