"""The report of a check: gather, match, judge."""

from __future__ import annotations

from compatcheck import __version__
from compatcheck.checking.checks import Checks, Criteria, find_auditor, open_criteria
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.next_step import find_next_step
from compatcheck.checking.request import Gathered
from compatcheck.checking.stack import holds_stack, name_unselected
from compatcheck.checking.verdict import Variants
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.progress import follow
from compatcheck.core.report import Finding, Report, SubjectReport
from compatcheck.core.summary import checked_anything
from compatcheck.frameworks.lines import LineFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.checking.annotator import Annotator
    from compatcheck.checking.baseline import Baseline
    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.checking.waivers import Waivers
    from compatcheck.core.advisory import Audit
    from compatcheck.core.errors import NothingToCheckError
    from compatcheck.core.fail_on import Threshold
    from compatcheck.core.source import Skipped
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

EVERY_CHECK = Checks()
"""All rules; findings from ``medium`` on fail."""


def check(
    asked: Request | Inspection,
    rules: RuleSet,
    environ: Mapping[str, str],
    checks: Checks = EVERY_CHECK,
    *,
    annotate: Annotator | None = None,
    plans: bool = True,
) -> Report:
    """Check environments, files or an image for known problems.

    Args:
        asked: what is read; an inspection has a policy with it.
        rules: the database.
        environ: variables of this process: the active environment, places of caches, settings of a run on this machine.
        checks: which rules take part, and what makes the run fail.
        annotate: adds what was measured on this machine; None adds nothing.
        plans: whether to plan for what fails, which costs more than all else.

    Returns:
        The report: findings worst first by subject, sizes in bytes, and the exit code it stands for.

    Raises:
        NothingToCheckError: the inputs hold no environment and no configuration.
        CompatcheckError: nothing could be checked at all: an option, the policy or the only input makes no sense.
    """
    inspection = as_inspection(asked)
    criteria = open_criteria(inspection, rules, checks)
    auditor = find_auditor(checks)
    baseline = None if checks.baseline is None else _open_baseline(checks.baseline)
    gathered = gather_all(inspection, rules, environ)
    audit = None if auditor is None else auditor(gathered.subjects)
    variants = Variants(criteria)
    report = build_report(gathered, criteria, audit, annotate, variants)
    if baseline is not None:
        checked = checked_anything(report)
        report = baseline.leave_entered(report, fail_unread=checks.strict or checks.fail_unread)
        fails = any(one.fails for one in report.findings)
        code = choose_exit_code(report.skipped, fails=fails, checked=checked, strict=checks.strict, audit=report.audit)
        report = report._replace(exit_code=code)
    report = add_plans(report, gathered, criteria, variants) if plans else report
    waivers = criteria.waivers
    report = report._replace(
        policy=None if inspection.policy is None else inspection.policy.path,
        waiver_notes=() if waivers is None else waivers.notes(complete=inspection.complete),
        next_step=find_next_step(inspection, gathered, report.subjects, environ),
    )
    if report.exit_code == EXIT_NOTHING_TO_CHECK and gathered.passes:
        report = report._replace(exit_code=EXIT_CLEAN)
    return report


def _open_baseline(path: str) -> Baseline:
    from compatcheck.checking.baseline import read_baseline  # noqa: PLC0415 (only with --baseline)

    return read_baseline(path)


MOST_PLANNED = 6
"""Subjects that are planned for in a report; `compatcheck fix` plans for all."""


def add_plans(report: Report, gathered: Gathered, criteria: Criteria, variants: Variants) -> Report:
    """Plan for what fails in a report: the changes after which nothing does, as `fix` finds them without a resolver."""
    failing = [finding for finding in report.findings if finding.fails]
    if not failing:
        return report
    from compatcheck.fixing.plan import Ways, find_plans  # noqa: PLC0415 (only where something fails)
    from compatcheck.fixing.remedies import agree_with  # noqa: PLC0415 (only where something fails)

    subjects = [subject for subject in gathered.subjects if subject.id not in gathered.aside]
    ways = Ways(None, why_not="`compatcheck fix` asks one")
    plans, _ = find_plans(subjects, failing, criteria.rules, variants.of_all_rules(), ways, most=MOST_PLANNED)
    findings = report.findings
    for plan in plans:
        findings = agree_with(plan, findings)
    return report._replace(findings=findings, plans=tuple(plans))


def build_report(
    gathered: Gathered,
    criteria: Criteria,
    audit: Audit | None = None,
    annotate: Annotator | None = None,
    variants: Variants | None = None,
) -> Report:
    """Match every subject, lay the waivers over the findings and judge the outcome."""
    variants = variants or Variants(criteria)
    rules, checks, threshold, waivers = criteria
    findings: list[Finding] = []
    skipped = list(gathered.skipped)
    lines = LineFinder(gathered.files)
    subjects = []
    for subject in follow(gathered.subjects, "judging runs"):
        verdict = variants(subject)
        outcome, aside = verdict.outcome, subject.id in gathered.aside
        found = verdict.findings
        if any(one.status == "affected" and one.suppressed is None for one in found):
            from compatcheck.fixing.remedies import try_remedies  # noqa: PLC0415 (only with findings)

            found = try_remedies(subject, found, rules, variants.remedied)
        findings.extend(one._replace(aside=True, fails=False) if aside else one for one in found)
        skipped.extend(subject.skipped)
        skipped.extend(outcome.skipped)
        chosen = gathered.reasons.get(subject.id, gathered.chosen)
        described = describe_subject(subject, outcome.folded, chosen, outcome.waiting)
        stacked = holds_stack(subject.environment, rules)
        unselected = name_unselected(subject.environment, rules)
        subjects.append(
            described._replace(estimate=verdict.estimate, aside=aside, stacked=stacked, unselected=unselected)
        )
    if findings:
        findings = [add_lines(finding, lines) for finding in findings]
        if annotate is not None and any(finding.status == "affected" for finding in findings):
            measured, unread = annotate(findings, rules)
            findings = list(measured)
            skipped.extend(unread)
    checked = bool(findings) or any(subject.is_checkable for subject in subjects)
    if checked or gathered.passes:  # where nothing was checked at all, the exit code says so
        skipped.extend(gathered.bare)
    if checks.strict or checks.fail_unread:
        skipped = [entry._replace(named=entry.named or checks.strict or not entry.passes) for entry in skipped]
    skipped = list(place_skipped(skipped, lines))
    if audit is not None:
        audit = rate_advisories(audit, gathered, threshold, waivers)
    fails = any(finding.fails for finding in findings)
    code = choose_exit_code(skipped, fails=fails, checked=checked, strict=checks.strict, audit=audit)
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


def describe_nothing(error: NothingToCheckError, rules: RuleSet, checks: Checks) -> Report:
    """Describe, for programs that read reports, a run that found nothing to check."""
    from compatcheck.core.source import Skipped, Source  # noqa: PLC0415 (only on the way to an error)

    report = build_report(Gathered((), ()), Criteria(rules, checks, parse_threshold(checks.fail_on)))
    skipped = Skipped(error.source or Source("command line"), error.message, error.hint)
    return report._replace(skipped=place_skipped((skipped,), LineFinder()), exit_code=error.exit_code)


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


def choose_exit_code(
    skipped: Sequence[Skipped], *, fails: bool, checked: bool, strict: bool, audit: Audit | None = None
) -> int:
    """Return the exit code: what fails wins over unreadable inputs, and an empty scan is not clean."""
    if fails or (audit is not None and any(advisory.fails for advisory in audit.advisories)):
        return EXIT_FINDINGS
    if any(entry.named for entry in skipped):
        return EXIT_UNREADABLE_INPUT
    if audit is not None and (audit.failure is not None or (strict and audit.unaudited)):
        return EXIT_UNREADABLE_INPUT
    checked = checked or (audit is not None and bool(audit.audited))
    return EXIT_CLEAN if checked else EXIT_NOTHING_TO_CHECK


def holds_something(subject: Subject) -> bool:
    """Tell whether a subject has a package or a configuration to check."""
    return bool(subject.documents) or (subject.environment is not None and bool(subject.environment.packages))


def describe_subject(
    subject: Subject, folded: tuple[tuple[str, int], ...], chosen: str | None, waiting: int = 0
) -> SubjectReport:
    """Describe a subject for reporters."""
    environment = subject.environment
    packages: tuple[tuple[str, str | None, str], ...] = ()
    optional: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    origin = subject.id
    if environment is not None:
        packages = tuple(
            (package.name, package.version or package.specifier, str(package.source))
            for package in environment.packages.values()
        )
        optional = frozenset(name for name, package in environment.packages.items() if package.is_optional)
        notes = environment.notes
        origin = environment.origin if chosen is None else f"{environment.origin} ({chosen})"
    return SubjectReport(
        id=subject.id,
        origin=origin,
        python=environment.python if environment is not None else None,
        packages=packages,
        optional=optional,
        facts=tuple((role, fact) for role, facts in subject.roles.items() for fact in facts.values()),
        unread_keys=subject.unread,
        gaps=tuple((gap.source, gap.why) for gap in subject.gaps),
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


def list_skipped(gathered: Gathered, lines: LineFinder) -> tuple[Skipped, ...]:
    """List what was not read of the inputs and of each subject, see `place_skipped`."""
    every = (*gathered.skipped, *(entry for subject in gathered.subjects for entry in subject.skipped))
    return place_skipped(every, lines)


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

    placed = ((entry, lines.with_line(entry.source)) for entry in entries)
    return tuple(
        entry._replace(
            source=place._replace(path=redact(place.path), key=place.key and redact(place.key)),
            reason=redact(entry.reason),
            hint=entry.hint and redact(entry.hint),
        )
        for entry, place in placed
    )
