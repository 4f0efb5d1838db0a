"""The answer of a report in a few lines: whether it fails and why, the worst finding with its remedy, whether the run fits."""

from compatcheck.core.errors import EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.report import Finding, Report, SubjectReport
from compatcheck.core.summary import checked_anything, fit_text, needs_text, size_text, worst_first


def headline(report: Report, *, inputs: bool = True) -> list[str]:
    """Return what a reader needs first: the reason of the exit code, the worst finding with its remedy, and the fit.

    Args:
        report: of a check.
        inputs: whether to say which inputs were not read.
    """
    lines = [f"{_word(report)}: {reason_text(report)}"]
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
    return [*lines, *open_lines(report, inputs=inputs)]


def _word(report: Report) -> str:
    checked = checked_anything(report)
    words = {
        EXIT_FINDINGS: "FAILS",
        EXIT_NOTHING_TO_CHECK: "NOT CHECKED",
        EXIT_UNREADABLE_INPUT: "NOT CHECKED WHOLE" if checked else "NOT READ",
    }
    return words.get(report.exit_code, "PASSES" if checked else "NOTHING TO CHECK")


def open_lines(report: Report, *, inputs: bool = True) -> list[str]:
    """Say what the answer leaves out: inputs and options that were not read, extras not selected, runs without an estimate.

    Args:
        report: of a check.
        inputs: whether to say which inputs were not read.
    """
    several = len(report.subjects) > 1
    found = [f"not read: {entry.source}: {entry.reason}" for entry in report.skipped if inputs and entry.named]
    others = [entry for entry in report.skipped if inputs and not entry.named]
    if others:
        rest = f" and {len(others) - 1} more" if len(others) > 1 else ""
        found.append(f"not checked: {others[0].source}: {others[0].reason}{rest}")
    for subject in report.subjects:
        if not subject.aside:
            of = f"{subject.id}: " if several else ""
            found += [f"not read: {place}: {why}" for place, why in subject.gaps]
            found += _unknown_lines(subject)
            found += [f"{of}{text}" for text in subject.unselected]
            found += [
                f"{of}no estimate: it needs {missing_text(needs)}" for needs in (_estimate_needs(subject),) if needs
            ]
    lines = list(dict.fromkeys(found))
    more = len(lines) - MAX_OPEN
    return [*lines[:MAX_OPEN], f"{more} more of that kind"] if more > 1 else lines


def _unknown_lines(subject: SubjectReport) -> list[str]:
    """Say which settings nobody can tell, in one line for each reason; what `auto` waits for is no loss of a file."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, source, why in subject.unresolved:
        if not why.startswith("`auto`"):
            names.setdefault((str(source), why), []).append(name)
    return [
        f"not known: {', '.join(facts[:2])}{f' and {len(facts) - 2} more' if len(facts) > 2 else ''} at {place}: {why}"
        for (place, why), facts in names.items()
    ]


MAX_OPEN = 4
"""Lines about what the answer leaves out; the rest are counted."""


_CHOICES = {"model.attn_implementation", "model.load_dtype", "model.quantization", "model.trainable_parameters"}
"""Facts about a model that its files do not tell: a run chooses them."""


def missing_text(needs: tuple[str, ...]) -> str:
    """Say with which options what an estimate needs is given; a model's own file tells all about it."""
    others = tuple(name for name in needs if not name.startswith("model.") or name in _CHOICES)
    model = len(others) < len(needs)
    return ", ".join([*(["the model (--model)"] if model else []), *([needs_text(others)] if others else [])])


def _estimate_needs(subject: SubjectReport) -> tuple[str, ...]:
    """Return the facts without which a run that is described has no estimate."""
    if subject.estimate is not None:
        return () if subject.estimate.phases else subject.estimate.needs
    known = {fact.name for _, fact in subject.facts}
    described = any(
        fact.name.startswith("training.") and fact.origin in {"configuration", "script", "set"}
        for _, fact in subject.facts
    )
    wanted = ("model.hidden_size", "training.sequence_length")
    return tuple(name for name in wanted if name not in known) if described and subject.is_checkable else ()


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
        unread = sum(entry.named for entry in report.skipped)
        if not unread and report.audit is not None:
            return "packages could not be audited"
        return f"{unread} input{'' if unread == 1 else 's'} could not be read"
    unread = sum(not entry.passes for entry in report.skipped)
    return f"nothing at or above --fail-on {report.threshold}{f', {unread} not checked' if unread else ''}"


def find_worst(report: Report) -> Finding | None:
    """Return the worst of what fails, else of what is certain; of a run that does not fit what alone decides that."""
    open_ones = (one for one in report.findings if one.suppressed is None and not one.aside and not one.folded)
    certain = sorted((one for one in open_ones if one.status == "affected"), key=worst_first)
    deciding = (one for one in certain if one.rating is not None and one.fails)
    failing = sorted((one for one in report.findings if one.fails and one.suppressed is None), key=worst_first)
    return next(deciding, None) or next(iter((*failing, *certain)), None)


def worst_text(report: Report, finding: Finding) -> str:
    """Say which finding it is and what it costs."""
    subjects = len({one.subject for one in report.findings})
    where = f" in {finding.subject}" if len(report.subjects) > 1 and subjects > 1 else ""
    size = size_text(finding.impact)
    advice = " (advice)" if finding.advice else " (possible)" if finding.status == "possible" else ""
    return f"{finding.severity}{advice} {finding.rule_id}{f', {size}' if size else ''}{where}"


def _remedy_text(finding: Finding) -> str:
    """Say the first remedy, and where the release that it changes is written; that of a setting says so itself."""
    if not finding.remedies:
        return ""
    remedy = finding.remedies[0]
    changed = (fact for fact in finding.facts if fact.name in remedy.text) if not remedy.settings else ()
    place = next((source for fact in changed for source in fact.sources if source.line is not None), None)
    return f": {remedy.text}" + ("" if place is None else f" ({place.path}:{place.line})")
