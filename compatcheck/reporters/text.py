"""The report for a terminal: cause, size, fix, in 80 columns."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from compatcheck.core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.facts import Fact, Value
    from compatcheck.core.report import Finding, FindingImpact, Report, SubjectReport

MAX_POSSIBLE = 5
"""Possible findings shown in full; the rest are counted."""

_COLORS = {"critical": "1;31", "high": "31", "medium": "33", "low": "36", "info": "2"}
_LABEL = 9


def format_report(report: Report, *, verbose: int, quiet: bool, color: bool, width: int) -> str:
    """Format a report.

    Args:
        report: the report.
        verbose: 0 to 2; from 1 on every possible finding and unread key is shown.
        quiet: one line per finding.
        color: whether to write ANSI colours.
        width: columns.
    """
    return "\n".join(_Writer(color=color, width=width, verbose=verbose, quiet=quiet).lines(report)) + "\n"


class _Writer:
    def __init__(self, *, color: bool, width: int, verbose: int, quiet: bool) -> None:
        self.color = color
        self.width = width
        self.verbose = verbose
        self.quiet = quiet
        self.base = ""
        """Directory that all places of a subject share; left out of them."""

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color else text

    def lines(self, report: Report) -> Iterator[str]:
        several = len(report.subjects) > 1
        for subject in report.subjects:
            findings = [finding for finding in report.findings if finding.subject == subject.id]
            if self.quiet:
                yield from (self.one_line(finding) for finding in findings)
                continue
            self.base = _common_directory(findings)
            yield self.paint(
                subject.id.replace(f" + {self.base}", " + ") if self.base or several else subject.origin,
                "1",
            )
            yield from self.subject(subject, findings)
        if not self.quiet:
            for entry in report.skipped:
                yield from self.wrapped("not read", f"{entry.source}: {entry.reason}", "33")
                if entry.hint:
                    yield from self.wrapped("", entry.hint)
            for note in report.waiver_notes:
                yield from self.wrapped("waiver", note)
            if report.skipped or report.waiver_notes:
                yield ""
        yield self.closing(report)

    def subject(self, subject: SubjectReport, findings: list[Finding]) -> Iterator[str]:
        shown = [finding for finding in findings if finding.suppressed is None]
        certain = [finding for finding in shown if finding.status == "affected"]
        possible = [finding for finding in shown if finding.status == "possible"]
        for finding in certain:
            yield ""
            yield from self.finding(finding)
        limit = len(possible) if self.verbose else MAX_POSSIBLE
        waiting = [finding for finding in possible if self.verbose == 0 and _needs_only_hardware(finding)]
        possible = [finding for finding in possible if finding not in waiting]
        for finding in possible[:limit]:
            yield ""
            yield from self.finding(finding)
        if len(possible) > limit:
            yield ""
            yield from self.wrapped(
                "possible",
                f"{len(possible) - limit} more depend on facts that are not known; -v shows them",
            )
        if waiting:
            yield ""
            count = len(waiting)
            options = sorted({_hardware_option(need) for finding in waiting for need in finding.needs})
            yield from self.wrapped(
                "hardware",
                f"{count} rule{'s' if count > 1 else ''} wait for {' and '.join(options)}; -v shows them",
            )
        if subject.waiting:
            yield ""
            count = subject.waiting
            text = f"{count} rule{'s wait' if count > 1 else ' waits'} for a configuration: give --training and --model"
            yield from self.wrapped("waiting", text)
        if not shown:
            yield f"  no known problem among the rules about {self.covered(subject)}"
        for name, values in subject.conflicts:
            yield from self.wrapped(
                "conflict",
                f"{name}: " + "; ".join(f"{_show(value)} at {source}" for value, source in values),
                "33",
            )
        for name, source, why in subject.unresolved:
            yield from self.wrapped("auto", f"{name} at {source}: {why}", "33")
        for name, count in subject.folded:
            yield from self.wrapped(
                "unknown",
                f"{name}: version unknown, {count} rule{'s depend' if count != 1 else ' depends'} on it",
            )
        unread = subject.unread_keys
        near = [(source, guess) for source, guess in unread if guess is not None]
        for source, guess in unread if self.verbose else near:
            yield from self.wrapped("unread", str(source) + (f": did you mean {guess}?" if guess else ""), "33")
        if not self.verbose and len(unread) > len(near):
            yield from self.wrapped("unread", f"{len(unread) - len(near)} keys no reader knows; -v lists them")
        if self.verbose:
            for note in subject.notes:
                yield from self.wrapped("note", note)
        yield ""

    @staticmethod
    def covered(subject: SubjectReport) -> str:
        count = len(subject.packages)
        return f"{count} package{'s' if count != 1 else ''} and {len(subject.facts)} facts"

    def one_line(self, finding: Finding) -> str:
        label = finding.severity.upper() if finding.status == "affected" else "POSSIBLE"
        head = self.paint(label, _COLORS[finding.severity])
        return f"{head} {finding.rule_id} {_size(finding.impact)} {finding.subject}".rstrip()

    def finding(self, finding: Finding) -> Iterator[str]:
        size = _size(finding.impact)
        label = finding.severity.upper()
        if finding.status == "possible":
            label = f"POSSIBLE ({finding.severity})"
        head = f"{self.paint(label, _COLORS[finding.severity])} {self.paint(finding.rule_id, '1')}"
        gap = self.width - len(label) - len(finding.rule_id) - len(size) - 1
        yield f"{head}{' ' * max(2, gap)}{self.paint(size, '1')}".rstrip()
        yield from (f"  {line}" for line in wrap(finding.title, self.width - 2))
        compact = finding.status == "possible" and not self.verbose
        if finding.needs:
            yield from self.wrapped("if", _decide(finding.needs), "33")
        if compact:
            uncertain = [assumption for assumption in finding.assumptions if "release" in assumption]
            for assumption in uncertain:
                yield from self.wrapped("unsure", assumption)
            for remedy in finding.remedies[:1]:
                yield from self.wrapped("fix", remedy.text, "32")
            return
        yield from self.wrapped("what", finding.message if self.verbose else _first_paragraph(finding.message))
        yield from self.because(finding)
        if finding.impact is not None and finding.impact.expected_bytes is None and finding.impact.needs:
            yield from self.wrapped("size of", "needs " + ", ".join(finding.impact.needs))
        for assumption in finding.assumptions:
            yield from self.wrapped("assumed", assumption)
        for remedy in finding.remedies:
            yield from self.wrapped("fix", remedy.text + (f" ({remedy.note})" if remedy.note else ""), "32")
            if remedy.command:
                yield f"  {'':<{_LABEL}}  {self.paint(remedy.command, '1')}"
        for _, title in finding.folklore:
            yield from self.wrapped("not true", title)
        references = finding.references if self.verbose else finding.references[:1]
        for reference in references:
            yield f"  {'see':<{_LABEL}}{reference.url}"

    def because(self, finding: Finding) -> Iterator[str]:
        label = "because"
        for fact in finding.facts:
            text = f"{fact.name} {_show(fact.value)}" if "." not in fact.name else f"{fact.name} = {_show_fact(fact)}"
            place = _place(fact).removeprefix(self.base)
            room = self.width - _LABEL - 2 - len(text) - len(place)
            yield from (
                self.wrapped(label, text)
                if room < 2
                else [self.label(label) + text + " " * room + self.paint(place, "2")]
            )
            if room < 2:
                yield from (" " * (_LABEL + 4) + self.paint(line, "2") for line in wrap(place, self.width - _LABEL - 4))
            label = ""

    def label(self, label: str, code: str = "2") -> str:
        return f"  {self.paint(f'{label:<{_LABEL}}', code) if label else ' ' * _LABEL}"

    def wrapped(self, label: str, text: str, code: str = "2") -> Iterator[str]:
        head = self.label(label, code)
        for line in wrap(
            " ".join(text.split()),
            self.width - _LABEL - 2,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]:
            yield f"{head}{line}"
            head = " " * (_LABEL + 2)

    def closing(self, report: Report) -> str:
        certain = [
            finding for finding in report.findings if finding.suppressed is None and finding.status == "affected"
        ]
        possible = sum(finding.suppressed is None and finding.status == "possible" for finding in report.findings)
        waived = sum(finding.suppressed is not None for finding in report.findings)
        counts: dict[str, int] = {}
        for finding in certain:
            counts[finding.severity] = counts.get(finding.severity, 0) + 1
        levels = ", ".join(
            f"{counts[level]} {level}" for level in ("critical", "high", "medium", "low", "info") if level in counts
        )
        parts = [f"{len(certain)} finding{'' if len(certain) == 1 else 's'}" + (f" ({levels})" if levels else "")]
        if possible:
            parts.append(f"{possible} possible")
        parts.append(f"{waived} waived")
        parts.append(f"{len(report.skipped)} not checked")
        database = f"db {report.database_date} ({report.database_rules} rules, {report.database_id})"
        return f"compatcheck: {', '.join(parts)} · {database} · {report.seconds:.2f} s"


def _common_directory(findings: list[Finding]) -> str:
    """Return the directory, with its slash, that holds every file the findings point at."""
    paths = {
        source.path
        for finding in findings
        for source in finding.locations
        if "/" in source.path and " " not in source.path
    }
    directories = {path.rpartition("/")[0] + "/" for path in paths}
    return directories.pop() if len(directories) == 1 else ""


def _needs_only_hardware(finding: Finding) -> bool:
    """Tell whether only an option about the machine is missing: its devices, driver or variables."""
    return all(need.startswith(("hardware.", "runtime.torch_cuda", "env ")) for need in finding.needs)


def _hardware_option(need: str) -> str:
    if need.startswith("env "):
        return "--env-file"
    return "--driver" if need == "hardware.driver" else "--nodes" if need == "hardware.nodes" else "--gpu"


def _first_paragraph(text: str) -> str:
    return text.split("\n\n", 1)[0]


def _show(value: Value) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _show_fact(fact: Fact) -> str:
    if fact.name.endswith("_bytes") and isinstance(fact.value, int):
        return format_bytes(fact.value)
    if isinstance(fact.value, int) and not isinstance(fact.value, bool) and abs(fact.value) >= 100_000:
        return f"{fact.value:,}"
    return _show(fact.value)


def _place(fact: Fact) -> str:
    if fact.origin == "derived":
        return fact.note or "derived"
    if not fact.sources:
        return fact.origin
    source = fact.sources[0]
    if source.path.startswith("default of"):
        return source.path
    place = source.path if source.line is None else f"{source.path}:{source.line}"
    if source.key is None or source.key in {fact.name, fact.name.partition(".")[2]}:
        return place
    return f"{place} {source.key}"


def _size(impact: FindingImpact | None) -> str:
    if impact is None:
        return ""
    if impact.effect == "fails_to_start":
        return "does not start"
    if impact.expected_bytes is None:
        return "size unknown" if impact.effect == "memory" else impact.effect.replace("_", " ")
    text = format_bytes(impact.expected_bytes)
    if impact.high_bytes is not None and impact.low_bytes is not None and impact.high_bytes > impact.low_bytes * 1.02:
        text = f"{format_bytes(impact.low_bytes)} … {format_bytes(impact.high_bytes)}"
    where = "" if impact.memory == "device" else f" {impact.memory}"
    return f"{text}{where} per {impact.scope}"


def _decide(needs: tuple[str, ...]) -> str:
    facts = [need for need in needs if "." in need and " " not in need and "[" not in need]
    others = [need for need in needs if need not in facts]
    words = [f"--set {name}=…" for name in facts] + others
    return ", ".join(words)
