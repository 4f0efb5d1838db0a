"""Execute a check: gather, match, judge, and hand the report to the reporters."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from compatcheck import __version__
from compatcheck.checking.checks import Checks, find_auditor, open_waivers, require_rules, require_selection
from compatcheck.checking.request import Gathered
from compatcheck.checking.runs import Plan, gather_all
from compatcheck.cli.output import Output, parse_outputs, write_reports
from compatcheck.core.errors import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_NOTHING_TO_CHECK,
    EXIT_UNREADABLE_INPUT,
    NothingToCheckError,
)
from compatcheck.core.fail_on import Threshold, parse_threshold
from compatcheck.core.report import Finding, Report, SubjectReport
from compatcheck.frameworks.lines import LineFinder
from compatcheck.lab.evidence.location import store_path
from compatcheck.matching.engine import match
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.checking.waivers import Waivers
    from compatcheck.core.advisory import Audit
    from compatcheck.core.source import Skipped
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


def execute(plan: Plan, checks: Checks, output: Output) -> int:
    """Run a check and write its reports.

    Args:
        plan: what is read, and the policy behind it.
        checks: the checks of the command line; what they leave open the policy decides.
        output: formats and files.

    Returns:
        The exit code.

    Raises:
        CompatcheckError: nothing could be checked at all.
    """
    started = time.perf_counter()
    targets = parse_outputs(output.outputs)
    rules = open_rules(checks.rule_directories)
    require_rules(rules)
    require_selection(checks, rules, plan.policy)
    threshold = parse_threshold(checks.fail_on)
    auditor = find_auditor(checks)
    hook = any(request.hook for request in plan.requests)
    try:
        gathered = gather_all(plan, rules, os.environ)
    except NothingToCheckError as error:
        report = describe_nothing(error, rules, checks, threshold)
        write_reports(report._replace(seconds=time.perf_counter() - started), output, targets, to_person=False)
        raise
    waivers = open_waivers(plan, checks, rules)
    audit = None if auditor is None else auditor(gathered.subjects)
    report = build_report(gathered, rules, checks, threshold, waivers, audit)
    report = report._replace(
        seconds=time.perf_counter() - started,
        policy=None if plan.policy is None else plan.policy.path,
        waiver_notes=() if waivers is None else waivers.notes(complete=plan.complete),
    )
    if hook and report.exit_code == EXIT_NOTHING_TO_CHECK:
        report = report._replace(exit_code=EXIT_CLEAN)
    write_reports(report, output, targets)
    return report.exit_code


def build_report(
    gathered: Gathered,
    rules: RuleSet,
    checks: Checks,
    threshold: Threshold,
    waivers: Waivers | None = None,
    audit: Audit | None = None,
) -> Report:
    """Match every subject, lay the waivers over the findings and judge the outcome."""
    findings: list[Finding] = []
    skipped = list(gathered.skipped)
    lines = LineFinder(gathered.files)
    subjects = []
    for subject in gathered.subjects:
        outcome = match(subject, rules, checks.selects)
        found = outcome.findings if waivers is None else waivers.apply(outcome.findings, subject)
        estimate = None
        if describes_run(subject):
            from compatcheck.checking.fit import rate_by_fit  # noqa: PLC0415 (only where a run is described)

            found, estimate = rate_by_fit(found, subject)
        findings.extend(found)
        skipped.extend(subject.skipped)
        skipped.extend(outcome.skipped)
        chosen = gathered.reasons.get(subject.id, gathered.chosen)
        described = describe_subject(subject, outcome.folded, chosen, outcome.waiting)
        subjects.append(described._replace(estimate=estimate, aside=subject.id in gathered.aside))
    if findings:
        findings = [add_lines(finding, lines) for finding in findings]
        path = store_path(os.environ)
        if os.path.exists(path) and any(finding.status == "affected" for finding in findings):
            from compatcheck.lab.measured_here import add_measured  # noqa: PLC0415 (only with a store and a certain finding)

            measured, unread = add_measured(findings, rules, path)
            findings = list(measured)
            skipped.extend(unread)
    skipped = list(place_skipped(skipped, lines))
    findings = [
        finding._replace(aside=True)
        if finding.subject in gathered.aside
        else mark_failing(finding, gathered.subjects, threshold, strict=checks.strict)
        for finding in findings
    ]
    if audit is not None:
        audit = rate_advisories(audit, gathered, threshold, waivers)
    code = judge(findings, skipped, gathered.subjects, strict=checks.strict, audit=audit)
    return Report(
        version=__version__,
        database_id=rules.id,
        database_date=rules.date,
        database_rules=rules.count,
        subjects=tuple(subjects),
        findings=tuple(findings),
        skipped=tuple(skipped),
        exit_code=code,
        threshold=threshold.text,
        strict=checks.strict,
        audit=audit,
    )


def describe_nothing(error: NothingToCheckError, rules: RuleSet, checks: Checks, threshold: Threshold) -> Report:
    """Describe, for programs that read reports, a run that found nothing to check."""
    from compatcheck.core.source import Skipped, Source  # noqa: PLC0415 (only on the way to an error)

    report = build_report(Gathered((), ()), rules, checks, threshold)
    skipped = Skipped(error.source or Source("command line"), error.message, error.hint)
    return report._replace(skipped=place_skipped((skipped,), LineFinder()), exit_code=error.exit_code)


def mark_failing(finding: Finding, subjects: Sequence[Subject], threshold: Threshold, *, strict: bool) -> Finding:
    """Mark a finding that counts against ``--fail-on``."""
    counts = finding.suppressed is None and (strict or finding.status == "affected")
    fails = counts and threshold.reached_by(finding, _device_bytes(subjects, finding))
    return finding._replace(fails=True) if fails else finding


def rate_advisories(audit: Audit, gathered: Gathered, threshold: Threshold, waivers: Waivers | None = None) -> Audit:
    """Lay the waivers over the advisories; each that is left fails the run, as none states a size or severity."""
    by_id = {subject.id: subject for subject in gathered.subjects}
    if waivers is not None:
        waivers.audited = audit.failure is None and not audit.unaudited
    rated = []
    for advisory in audit.advisories:
        found = advisory if waivers is None else waivers.apply_to_advisory(advisory, by_id[advisory.subject])
        counts = found.suppressed is None and found.subject not in gathered.aside
        rated.append(found._replace(fails=counts and threshold.text != "never"))
    return audit._replace(advisories=tuple(rated))


def judge(
    findings: Sequence[Finding],
    skipped: Sequence[Skipped],
    subjects: Sequence[Subject],
    *,
    strict: bool,
    audit: Audit | None = None,
) -> int:
    """Return the exit code: findings win over unreadable inputs, and an empty scan is not clean."""
    if any(finding.fails for finding in findings):
        return EXIT_FINDINGS
    if audit is not None and any(advisory.fails for advisory in audit.advisories):
        return EXIT_FINDINGS
    if any(entry.named or strict for entry in skipped):
        return EXIT_UNREADABLE_INPUT
    if audit is not None and (audit.failure is not None or (strict and audit.unaudited)):
        return EXIT_UNREADABLE_INPUT
    if not findings and not any(holds_packages(subject) for subject in subjects):
        return EXIT_NOTHING_TO_CHECK
    return EXIT_CLEAN


def holds_packages(subject: Subject) -> bool:
    """Tell whether rules could be checked on a subject: every rule is about a package."""
    return subject.environment is not None and bool(subject.environment.packages)


def describes_run(subject: Subject) -> bool:
    """Tell whether the inputs say enough of a run to estimate what it needs: its model, and the tokens of a step."""
    return any("training.sequence_length" in facts and "model.hidden_size" in facts for facts in subject.roles.values())


def holds_something(subject: Subject) -> bool:
    """Tell whether a subject has a package or a configuration to check."""
    return bool(subject.documents) or (subject.environment is not None and bool(subject.environment.packages))


def _device_bytes(subjects: Sequence[Subject], finding: Finding) -> int | None:
    for subject in subjects:
        if subject.id == finding.subject and finding.role in subject.roles:
            fact = subject.roles[finding.role].get("hardware.memory_bytes")
            return fact.value if fact is not None and isinstance(fact.value, int) else None
    return None


def describe_subject(
    subject: Subject, folded: tuple[tuple[str, int], ...], chosen: str | None, waiting: int = 0
) -> SubjectReport:
    """Describe a subject for reporters."""
    environment = subject.environment
    packages: tuple[tuple[str, str | None, str], ...] = ()
    notes: tuple[str, ...] = ()
    origin = subject.id
    if environment is not None:
        packages = tuple(
            (package.name, package.version or package.specifier, str(package.source))
            for package in environment.packages.values()
        )
        notes = environment.notes
        origin = environment.origin if chosen is None else f"{environment.origin} ({chosen})"
    return SubjectReport(
        id=subject.id,
        origin=origin,
        python=environment.python if environment is not None else None,
        packages=packages,
        facts=tuple((role, fact) for role, facts in subject.roles.items() for fact in facts.values()),
        unread_keys=subject.unread,
        conflicts=tuple((conflict.fact, conflict.values) for conflict in subject.conflicts),
        unresolved=subject.unresolved,
        folded=folded,
        notes=notes,
        complete=environment is not None and environment.complete,
        waiting=waiting,
        variables=None if environment is None else environment.variables,
        variables_complete=environment is not None and environment.variables_complete,
        target=subject.target,
    )


def add_lines(finding: Finding, lines: LineFinder) -> Finding:
    """Find the lines of a finding's facts in their files."""
    facts = tuple(fact._replace(sources=tuple(map(lines.with_line, fact.sources))) for fact in finding.facts)
    if facts == finding.facts:
        return finding
    return finding._replace(
        facts=facts,
        locations=tuple(dict.fromkeys(source for fact in facts for source in fact.sources)),
    )


def place_skipped(skipped: Iterable[Skipped], lines: LineFinder) -> tuple[Skipped, ...]:
    """Say each thing that was not read once, with its line, and without credentials."""
    entries = tuple(dict.fromkeys(skipped))
    if not entries:
        return ()
    from compatcheck.core.redaction import redact  # noqa: PLC0415 (only when something was not read)

    entries = tuple(entry._replace(reason=redact(entry.reason)) for entry in entries)
    return tuple(entry._replace(source=lines.with_line(entry.source)) for entry in entries)
