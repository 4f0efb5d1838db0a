"""The report for a terminal: cause, size, fix, in 80 columns."""

from __future__ import annotations

from compatcheck.core import columns
from compatcheck.core.columns import measure, pad
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS
from compatcheck.core.headline import ending, headline
from compatcheck.core.language import translate
from compatcheck.core.summary import (
    assumptions_in_words,
    checked_anything,
    choose,
    clean_text,
    closing_lines,
    device_text,
    fact_text,
    fit_text,
    gap_text,
    measured_text,
    needs_text,
    place_text,
    shared_directory,
    size_text,
    target_text,
    value_text,
    waiting_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from compatcheck.core.advisory import Advisory
    from compatcheck.core.report import Finding, NextStep, Report, SubjectReport
    from compatcheck.core.source import Source

MAX_SUBJECTS = 3
"""Subjects reported one by one; what more of them have in common is said once."""

COLORS = {"critical": "1;31", "high": "31", "medium": "33", "low": "36", "info": "2"}
_LABEL = 9


def format_report(
    report: Report, *, verbose: int, quiet: bool, color: bool, width: int, most: int = MAX_SUBJECTS
) -> str:
    """Format a report.

    Args:
        report: the report.
        verbose: 0 to 2; from 1 on every subject, possible finding and unread key is shown.
        quiet: one line per finding.
        color: whether to write ANSI colours.
        width: columns.
        most: subjects that are reported one by one.
    """
    writer = _Writer(color=color, width=width, verbose=verbose, quiet=quiet)
    return "\n".join(writer.lines(report, most)) + "\n"


class Terminal:
    """What is written in colours and columns."""

    def __init__(self, *, color: bool, width: int, verbose: int) -> None:
        """Keep the options."""
        self.color = color
        self.width = width
        self.verbose = verbose

    def paint(self, text: str, code: str) -> str:
        """Write a text in a colour."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color else text

    def heading(self, finding: Finding, size: str, *, code: str = "", indent: str = "") -> Iterator[str]:
        """Write severity and rule, and a size at the right or on a line of its own."""
        label, size = severity_text(finding), translate(size)
        gap = self.width - measure(f"{indent}{label} {finding.rule_id}{size}")
        painted = self.paint(size, code) if code else size
        head = f"{indent}{self.paint(label, COLORS[finding.severity])} {self.paint(finding.rule_id, '1')}"
        if gap > 1:
            yield f"{head}{' ' * gap}{painted}".rstrip()
        else:
            yield head
            yield f"{' ' * max(0, self.width - measure(size))}{painted}".rstrip()


def severity_text(finding: Finding) -> str:
    """Write the severity of a finding, and whether it is one."""
    word = "POSSIBLE" if finding.status == "possible" else "ADVICE" if finding.advice else None
    return translate(finding.severity.upper()) if word is None else translate(word) + _note(finding.severity)


class _Writer(Terminal):
    def __init__(self, *, color: bool, width: int, verbose: int, quiet: bool) -> None:
        super().__init__(color=color, width=width, verbose=verbose)
        self.quiet = quiet
        self.base = ""
        """Directory that all places of a subject share; left out of them."""

    def lines(self, report: Report, most: int) -> Iterator[str]:
        main = sum(not subject.aside for subject in report.subjects)
        fold = main > most and not self.verbose and not self.quiet
        if not self.quiet:
            yield from self.headline(report)
        if fold:
            yield from self.folded(report)
        told: dict[tuple[object, ...], str] = {}
        for subject in report.subjects if not fold else ():
            findings = [finding for finding in report.findings if finding.subject == subject.id]
            if self.quiet:
                yield from self.few_lines(subject, findings, named=len(report.subjects) > 1)
                continue
            self.base = shared_directory(source for finding in findings for source in finding.locations)
            title = subject.origin if subject.origin.startswith(subject.id) else subject.id
            yield from (self.paint(line, "1") for line in fill(title, self.width))
            fit = fit_text(subject) if len(report.subjects) > 1 else None
            if fit is not None:
                yield from (f"  {line}" for line in fill(fit, self.width - 2))
            yield from (
                self.aside(subject, findings)
                if subject.aside and not self.verbose
                else self.subject(subject, findings, self.repeated(subject, findings, told))
            )
        if report.plans and not self.quiet:
            from compatcheck.reporters.plan import plan_lines  # noqa: PLC0415 (only where something fails)

            yield from plan_lines(report, color=self.color, width=self.width)
        if report.audit is not None:
            yield from self.audit(report)
        if not self.quiet:
            yield from self.skipped(report)
            for note in report.waiver_notes:
                yield from self.wrapped("waiver", note)
            if report.skipped or report.waiver_notes:
                yield ""
        else:
            counted = (entry for entry in report.skipped if entry.named)
            yield from (" ".join(translate(f"NOT READ {entry.source}: {entry.reason}").split()) for entry in counted)
            yield from (translate(f"WAIVER {note}") for note in report.waiver_notes)
        if report.next_step is not None and not self.quiet:
            yield from self.next_step(report.next_step)
        yield from closing_lines(report, self.width)
        yield from fill(ending(report), self.width)

    def headline(self, report: Report) -> Iterator[str]:
        """Begin with the answer: whether the run fails, the worst finding, whether the run fits."""
        first, *rest = headline(report, inputs=checked_anything(report))  # else they follow at once, with what to do
        code = "1;31" if report.exit_code == EXIT_FINDINGS else "1;32" if report.exit_code == EXIT_CLEAN else "1;33"
        yield from (self.paint(line, code) for line in fill(first, self.width))
        for text in rest:
            for index, line in enumerate(fill(text, self.width - 2, self.width - 4)):
                yield f"{'    ' if index else '  '}{line}"
        yield ""

    def repeated(
        self, subject: SubjectReport, findings: list[Finding], told: dict[tuple[object, ...], str]
    ) -> dict[str, list[Finding]]:
        """Return, by target, the findings that another target of the same subject has alike: the machine has no part in them."""
        again: dict[str, list[Finding]] = {}
        for finding in findings if subject.target is not None and not self.verbose else ():
            facts = tuple((fact.name, fact.value) for fact in finding.facts)
            words = (finding.rule_id, finding.role, finding.status, finding.severity, finding.impact, finding.needs)
            key = (subject.id.removesuffix(f" (on {subject.target})"), *words, facts)
            first = told.setdefault(key, str(subject.target))
            if first != subject.target and finding.suppressed is None:
                again.setdefault(first, []).append(finding)
        return again

    def subject(
        self, subject: SubjectReport, findings: list[Finding], repeated: Mapping[str, list[Finding]]
    ) -> Iterator[str]:
        said = [finding for found in repeated.values() for finding in found]
        choice = choose((finding for finding in findings if finding not in said), every=bool(self.verbose))
        for finding in choice.shown:
            yield ""
            yield from self.finding(finding)
        if choice.rest is not None:
            yield ""
            yield from self.wrapped("more", f"{choice.rest}; -v shows them")
        waiting = waiting_text(subject)
        if waiting is not None:
            yield ""
            yield from self.wrapped("waiting", waiting)
        for finding in findings:
            if finding.suppressed is not None:
                end = finding.suppressed.expires or finding.suppressed.until
                until = f" (until {end})" if end else ""
                yield from self.wrapped("waived", f"{finding.rule_id}: {finding.suppressed.reason}{until}")
        for target, found in repeated.items():
            yield ""
            certain_ones = list(dict.fromkeys(finding.rule_id for finding in found if finding.status == "affected"))
            possible_ones = len(found) - sum(finding.status == "affected" for finding in found)
            parts = [*certain_ones, *([f"{possible_ones} possible"] if possible_ones else [])]
            yield from self.wrapped("same", f"as on {target}: {', '.join(parts)}")
        if not findings:
            yield from (f"  {line}" for line in fill(clean_text(subject), self.width - 2))
        yield from self.remarks(subject)
        yield ""

    def aside(self, subject: SubjectReport, findings: list[Finding]) -> Iterator[str]:
        """Report a subject whose findings do not count: a line for each that is certain."""
        shown = [finding for finding in findings if finding.suppressed is None]
        certain = [finding for finding in shown if finding.status == "affected"]
        for finding in certain:
            parts = (f"{translate(finding.severity.upper())} {finding.rule_id}", translate(size_text(finding.impact)))
            yield from (f"  {line}" for line in fill(" ".join(filter(None, parts)), self.width - 2))
        possible = len(shown) - len(certain)
        if possible:
            text = (
                f"{possible} possible finding{'s' if possible > 1 else ''}; -v shows {'them' if possible > 1 else 'it'}"
            )
            yield from (f"  {line}" for line in fill(text, self.width - 2))
        if not shown:
            yield from (f"  {line}" for line in fill(clean_text(subject), self.width - 2))
        yield ""

    def remarks(self, subject: SubjectReport) -> Iterator[str]:
        """Say which machine is declared, and what could not be decided, filled in or read of a subject."""
        device = device_text(subject.facts)
        if device is not None:
            yield from self.wrapped("device", device)
        target = target_text(subject.facts)
        if target is not None:
            yield from self.wrapped("target", target)
        for name, values in subject.conflicts:
            yield from self.wrapped(
                "conflict",
                f"{name}: " + "; ".join(f"{value_text(value)} at {source}" for value, source in values),
                "33",
            )
        for name, source, why in subject.unresolved:
            yield from self.wrapped("auto", f"{name} at {source}: {why}", "33")
        for name, count in subject.folded:
            yield from self.wrapped(
                "unknown",
                f"{name}: version unknown, {count} rule{'s depend' if count != 1 else ' depends'} on it",
            )
        yield from self.not_read((subject.gaps,))
        unread = subject.unread_keys
        near = [(source, guess) for source, guess in unread if guess is not None]
        for source, guess in unread if self.verbose else near:
            yield from self.wrapped("unread", str(source) + (f": did you mean {guess}?" if guess else ""), "33")
        if not self.verbose and len(unread) > len(near):
            yield from self.wrapped("unread", f"{len(unread) - len(near)} keys no reader knows; -v lists them")
        if self.verbose:
            for note in subject.notes:
                yield from self.wrapped("note", note)

    def not_read(self, gaps: Iterable[tuple[tuple[Source, str], ...]]) -> Iterator[str]:
        """Name what was not read of configurations, each part once."""
        for source, why in dict.fromkeys(gap for found in gaps for gap in found):
            yield from self.wrapped("not read", f"{source}: {gap_text(why)}", "33")

    def unread(self, report: Report, shorten: Callable[[Iterable[str]], str]) -> Iterator[str]:
        """Name the keys that no reader knows, those that look like a known one first."""
        near: dict[tuple[str | None, str], list[str]] = {}
        unread = dict.fromkeys(pair for subject in report.subjects for pair in subject.unread_keys)
        for source, guess in unread:
            if guess is not None:
                near.setdefault((source.key, guess), []).append(source.path)
        for (key, guess), paths in near.items():
            yield from self.wrapped("unread", f"{key} in {shorten(paths)}: did you mean {guess}?", "33")
        far = sum(guess is None for _, guess in unread)
        if far:
            yield from self.wrapped("unread", f"{far} key{'s' if far > 1 else ''} no reader knows; -v lists them")

    def folded(self, report: Report) -> Iterator[str]:
        """Report many subjects together, rule by rule."""
        from compatcheck.reporters.folding import fold_findings, fold_unknown_versions, shorten  # noqa: PLC0415 (many subjects)

        total = len(report.subjects)
        folded = {id(entry.finding): entry for entry in fold_findings(report.findings)}
        choice = choose(entry.finding for entry in folded.values())
        yield self.paint(translate(f"{total} configurations and environments; -v reports them one by one"), "1")
        for finding in choice.shown:
            yield ""
            yield from self.finding(finding)
            names = [_run_of(name) for name in folded[id(finding)].subjects]
            count = f"{len(names)} of {total}: " if len(names) > 1 else ""
            yield from self.wrapped("in", count + shorten(dict.fromkeys(names)))
        yield ""
        if choice.rest is not None:
            yield from self.wrapped("more", f"{choice.rest}; -v shows them")
        found = {finding.subject for finding in report.findings if finding.suppressed is None}
        clean = [subject for subject in report.subjects if subject.id not in found]
        if clean:
            bare = sum(not subject.is_checkable for subject in clean)
            if bare < len(clean):
                yield from self.wrapped("none", f"no known problem in {len(clean) - bare} of {total}")
            if bare:
                yield from self.wrapped("none", f"nothing was checked in {bare} of {total}: no package is known")
        for name, values in dict.fromkeys(pair for subject in report.subjects for pair in subject.conflicts):
            places = "; ".join(f"{value_text(value)} at {source}" for value, source in values)
            yield from self.wrapped("conflict", f"{name}: {places}", "33")
        automatic = dict.fromkeys(str(source) for subject in report.subjects for _, source, _ in subject.unresolved)
        if automatic:
            text = f"{len(automatic)} values are left to a program that is not known: {shorten(automatic)}"
            yield from self.wrapped("auto", text, "33")
        for package, rules, missing in fold_unknown_versions(report):
            depend = f"{rules} rule{'s depend' if rules != 1 else ' depends'} on it"
            text = f"{package}: version unknown in {missing} of {total}, {depend}"
            yield from self.wrapped("unknown", text)
        yield from self.not_read(subject.gaps for subject in report.subjects)
        yield from self.unread(report, shorten)
        yield ""

    def audit(self, report: Report) -> Iterator[str]:
        """Report security advisories, and apart from them what could not be audited."""
        from compatcheck.core.advisory import audit_text, fold_advisories, fold_unaudited  # noqa: PLC0415 (with --security)
        from compatcheck.reporters.folding import shorten  # noqa: PLC0415 (with --security)

        audit = report.audit
        assert audit is not None  # noqa: S101 (the caller looked)
        folded = fold_advisories(audit.advisories)
        if self.quiet:
            for advisory, subjects in folded:
                label = self.paint("ADVISORY", "31") if advisory.suppressed is None else "WAIVED"
                yield f"{label} {advisory.id} {advisory.package} {advisory.version} {shorten(subjects)}"
            if audit.unaudited:
                yield f"NOT AUDITED {audit_text(audit)}"
            return
        yield from (self.paint(line, "1") for line in fill(f"security: {audit_text(audit)}", self.width))
        if any(advisory.suppressed is None for advisory, _ in folded):
            yield ""
        for advisory, subjects in folded:
            yield from self.advisory(advisory, shorten(subjects) if len(report.subjects) > 1 else None)
        for reason, names in fold_unaudited(audit.unaudited):
            listed = ", ".join(names) if self.verbose else shorten(names)
            said = "for this reason" if reason == audit.failure else reason
            yield from self.wrapped("no audit", f"{said}: {listed}", "33")
        notes = audit.notes
        if notes and not self.verbose:
            notes = (f"{len(notes)} looked up without the local label of the version; -v lists them",)
        for note in notes:
            yield from self.wrapped("note", note)
        yield ""

    def advisory(self, advisory: Advisory, subjects: str | None) -> Iterator[str]:
        """Report one advisory; a waived one in one line."""
        from compatcheck.core.advisory import fix_text  # noqa: PLC0415 (only with --security)

        if advisory.suppressed is not None:
            yield from self.wrapped("waived", f"{advisory.id} ({advisory.package}): {advisory.suppressed.reason}")
            return
        about = f"{advisory.package} {advisory.version}"
        head = f"{self.paint('ADVISORY', '31')} {self.paint(advisory.id, '1')}"
        if len(f"ADVISORY {advisory.id} {about}") <= self.width:
            yield f"{head} {about}"
        else:
            yield from (head, f"  {about}")
        yield from self.wrapped("what", advisory.description)
        yield from self.wrapped("fix", fix_text(advisory), "32")
        if advisory.aliases:
            yield from self.wrapped("also", ", ".join(advisory.aliases))
        if subjects is not None:
            yield from self.wrapped("in", subjects)
        if advisory.url is not None:
            yield f"  {pad(translate('see'), _LABEL)}{advisory.url}"
        yield ""

    def skipped(self, report: Report) -> Iterator[str]:
        """List what was not read; many inputs with one reason are said once."""
        if not report.skipped:
            return
        from compatcheck.reporters.folding import fold_skips, shorten  # noqa: PLC0415 (only when something was not read)

        for entry in fold_skips(report.skipped):
            alone = self.verbose or len(entry.others) < MAX_SUBJECTS
            for skip in (entry.first, *entry.others) if alone else (entry.first,):
                yield from self.wrapped("not read", f"{skip.source}: {skip.reason}", "33")
                if skip.hint:
                    yield from self.wrapped("", skip.hint)
            if not alone:
                places = shorten(str(skip.source) for skip in entry.others)
                yield from self.wrapped("", f"the same for {len(entry.others)} others: {places}; -v lists them")

    def next_step(self, step: NextStep) -> Iterator[str]:
        """Say what can be run next; a command is never broken."""
        yield from self.wrapped("next", step.reason, "32")
        yield from (f"{self.label('')}{self.paint(command, '1')}" for command in step.commands)
        yield ""

    def few_lines(self, subject: SubjectReport, findings: list[Finding], *, named: bool) -> Iterator[str]:
        """Report a subject with a line for each finding, and one for what is not shown."""
        choice = choose(findings, every=bool(self.verbose))
        waived = [finding for finding in findings if finding.suppressed is not None]
        indent = ""
        if named and (choice.shown or waived):
            yield translate(f"{subject.id} (not counted)") if subject.aside else subject.id
            indent = "  "
        for finding in (*choice.shown, *waived):
            label = severity_text(finding) if finding.suppressed is None else translate("WAIVED")
            parts = (self.paint(label, COLORS[finding.severity]), finding.rule_id, translate(size_text(finding.impact)))
            yield indent + " ".join(part for part in parts if part)
        if choice.shown and choice.rest is not None:
            yield from wrap(f"{choice.rest}; -v shows them", self.width, indent, f"{indent}  ")

    def finding(self, finding: Finding) -> Iterator[str]:
        yield from self.heading(finding, size_text(finding.impact), code="1")
        yield from (f"  {line}" for line in fill(finding.title, self.width - 2))
        if finding.measured_here is not None:
            yield from self.wrapped("measured", measured_text(finding.measured_here))
        compact = finding.status == "possible" and not self.verbose
        if finding.needs:
            yield from self.wrapped("if", needs_text(finding.needs), "33")
        if compact:
            uncertain = [assumption for assumption in finding.assumptions if "release" in assumption]
            for assumption in uncertain:
                yield from self.wrapped("unsure", assumption)
            for remedy in finding.remedies[:1]:
                yield from self.wrapped("fix", remedy.text, "32")
            return
        if finding.rating is not None:
            yield from self.wrapped("decides", finding.rating, "31")
        message = finding.message if self.verbose else finding.message.split("\n\n", 1)[0]
        yield from self.wrapped(
            "what", translate(message).replace("**", "")
        )  # Markdown's emphasis says nothing on a terminal
        yield from self.because(finding)
        if finding.impact is not None and finding.impact.expected_bytes is None and finding.impact.needs:
            yield from self.wrapped("size of", "needs " + ", ".join(finding.impact.needs))
        for assumption in finding.assumptions if self.verbose else assumptions_in_words(finding):
            yield from self.wrapped("assumed", assumption)
        for remedy in finding.remedies:
            yield from self.wrapped("fix", translate(remedy.text) + (_note(remedy.note) if remedy.note else ""), "32")
            if remedy.command:
                yield f"  {'':<{_LABEL}}  {self.paint(remedy.command, '1')}"
        for _, title in finding.folklore:
            yield from self.wrapped("not true", title)
        references = finding.references if self.verbose else finding.references[:1]
        for reference in references:
            yield f"  {pad(translate('see'), _LABEL)}{reference.url}"

    def because(self, finding: Finding) -> Iterator[str]:
        label = "because"
        for fact in finding.facts:
            text = fact_text(fact)
            place = translate(place_text(fact, self.base))
            room = self.width - _LABEL - 2 - measure(text + place)
            yield from (
                self.wrapped(label, text)
                if room < 2
                else [self.label(label) + text + " " * room + self.paint(place, "2")]
            )
            if room < 2:
                lines = wrap(place, self.width - _LABEL - 4)
                yield from (" " * (_LABEL + 4) + self.paint(line, "2") for line in lines)
            label = ""

    def label(self, label: str, code: str = "2") -> str:
        return f"  {self.paint(pad(translate(label), _LABEL), code) if label else ' ' * _LABEL}"

    def wrapped(self, label: str, text: str, code: str = "2") -> Iterator[str]:
        head = self.label(label, code)
        for line in fill(text, self.width - _LABEL - 2) or [""]:
            yield f"{head}{line}"
            head = " " * (_LABEL + 2)


def fill(text: str, width: int, rest: int | None = None) -> list[str]:
    """Break a sentence, in the language of the reader, into lines of at most ``width`` columns, of ``rest`` behind the first."""
    return columns.fill(translate(text), width, rest)


def wrap(text: str, width: int, first: str = "", rest: str = "", **options: Any) -> list[str]:  # noqa: ANN401 (textwrap's)
    """Break a sentence as `fill` does; ``first`` and ``rest`` stand in front of the lines.

    Args:
        text: a sentence.
        width: columns with what stands in front.
        first: in front of the first line.
        rest: in front of the others.
        options: of `textwrap.wrap`, for a text without wide characters.
    """
    text = translate(text)
    if columns.is_narrow(text):
        from textwrap import wrap as break_lines  # noqa: PLC0415 (0.8 ms; not on the way to `env`)

        return break_lines(text, width, initial_indent=first, subsequent_indent=rest, **options)
    lines = columns.fill(text, width - measure(first), width - measure(rest))
    return [f"{rest if index else first}{line}" for index, line in enumerate(lines)]


def wrap_text(text: str, first: int, rest: int) -> list[str]:
    """Break a sentence into lines of at most 80 columns; ``first`` and ``rest`` are the blanks in front of them."""
    return wrap(text, 80, " " * first, " " * rest)


def wrap_names(text: str, first: str = "", rest: str = "") -> list[str]:
    """Break a text that is full of names into lines of at most 80 columns, and no name, path or address of it."""
    return wrap(text, 80, first, rest, break_long_words=False, break_on_hyphens=False)


def _note(text: str) -> str:
    """Write a note in the brackets of the language."""
    return translate(" (") + translate(text) + translate(")")


def _run_of(subject_id: str) -> str:
    """Name a subject by its configurations where it has any, without the requirement root before them."""
    directory, colon, files = subject_id.partition(": ")
    if not colon:
        return subject_id.split(" + ", 1)[-1]
    return f"{directory}/{files.split(' + ', 1)[-1]}"
