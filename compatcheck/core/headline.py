"""The answer of a report in a few lines: whether it fails and why, the worst finding with its remedy, whether the run fits."""

from compatcheck.core.errors import EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.report import Finding, Report
from compatcheck.core.summary import checked_anything, fit_text, size_text, worst_first


def headline(report: Report) -> list[str]:
    """Return what a reader needs first: the reason of the exit code, the worst finding with its remedy, and the fit."""
    word = {EXIT_FINDINGS: "FAILS", EXIT_NOTHING_TO_CHECK: "NOT CHECKED", EXIT_UNREADABLE_INPUT: "NOT READ"}
    lines = [f"{word.get(report.exit_code, 'PASSES')}: {reason_text(report)}"]
    worst = find_worst(report)
    if worst is not None:
        lines.append(f"worst: {worst_text(report, worst)}{_remedy_text(worst)}")
    fits = [(subject, text) for subject in report.subjects if (text := fit_text(subject)) is not None]
    several = len(report.subjects) > 1
    if len(fits) == 1:
        subject, text = fits[0]
        lines.append(f"{subject.id}: {text}" if several else text)
    elif fits:
        bad = [subject.id for subject, text in fits if not text.startswith("fits")]
        said = f"{len(bad)} of {len(fits)} do not fit, or may not" if bad else f"all {len(fits)} fit"
        lines.append(f"of the runs that could be estimated {said}")
    return lines


def ending(report: Report) -> str:
    """Return the last line of a report: exit code, its reason, and the worst finding."""
    worst = find_worst(report)
    said = f"exit {report.exit_code}: {reason_text(report)}"
    return said if worst is None else f"{said}; worst: {worst_text(report, worst)}"


def reason_text(report: Report) -> str:
    """Say why a report has its exit code."""
    if report.exit_code == EXIT_FINDINGS:
        count = sum(finding.fails for finding in report.findings)
        advisories = 0
        if report.audit is not None:
            from compatcheck.core.advisory import count_failing  # noqa: PLC0415 (only with an auditor)

            advisories = count_failing(report.audit)
        said = [f"{advisories} security advisor{'y' if advisories == 1 else 'ies'}"] if advisories else []
        if count or not advisories:
            said.insert(0, f"{count} finding{'' if count == 1 else 's'} at or above --fail-on {report.threshold}")
        return ", ".join(said)
    if report.exit_code == EXIT_NOTHING_TO_CHECK or not checked_anything(report):
        there = any(subject.packages for subject in report.subjects)
        return "no package of a training stack is there" if there else "no package is known"
    if report.exit_code == EXIT_UNREADABLE_INPUT:
        unread = sum(entry.named or report.strict for entry in report.skipped)
        if not unread and report.audit is not None:
            return "packages could not be audited"
        return f"{unread} input{'' if unread == 1 else 's'} could not be read"
    return f"nothing at or above --fail-on {report.threshold}"


def find_worst(report: Report) -> Finding | None:
    """Return the worst certain finding; of a run that does not fit what decides that, where something does by itself."""
    open_ones = (one for one in report.findings if one.suppressed is None and not one.aside and not one.folded)
    certain = sorted((one for one in open_ones if one.status == "affected"), key=worst_first)
    deciding = (one for one in certain if one.rating is not None and one.fails)
    return next(deciding, certain[0] if certain else None)


def worst_text(report: Report, finding: Finding) -> str:
    """Say which finding it is and what it costs."""
    subjects = len({one.subject for one in report.findings})
    where = f" in {finding.subject}" if len(report.subjects) > 1 and subjects > 1 else ""
    size = size_text(finding.impact)
    advice = " (advice)" if finding.advice else ""
    return f"{finding.severity}{advice} {finding.rule_id}{f', {size}' if size else ''}{where}"


def _remedy_text(finding: Finding) -> str:
    """Say the first remedy, and where what it changes is written."""
    if not finding.remedies:
        return ""
    text = finding.remedies[0].text
    changed = (fact for fact in finding.facts if fact.name in text)
    place = next((source for fact in changed for source in fact.sources if source.line is not None), None)
    return f": {text}" + ("" if place is None else f" ({place.path}:{place.line})")
