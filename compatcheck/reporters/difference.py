"""A comparison of two environments: for a terminal, for the comment of a pull request, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.columns import pad
from compatcheck.core.difference import ENTERED, LEFT, STAYED
from compatcheck.core.errors import EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.language import translate
from compatcheck.core.summary import fact_text, needs_text, place_text, size_text, value_text
from compatcheck.core.units import format_bytes
from compatcheck.reporters.figure import draw_bars, make_bar
from compatcheck.reporters.json import describe_fact, describe_finding, describe_origin, describe_skipped
from compatcheck.reporters.markdown import escape, rule_link, table
from compatcheck.reporters.text import Terminal, fill, severity_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from compatcheck.core.difference import Difference, FactChange, FindingChange, PackageChange
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.report import Finding, Report
    from compatcheck.core.source import Skipped
    from compatcheck.reporters.figure import Figure

MAX_POSSIBLE = 5
"""Possible findings that entered or left shown in full; the rest are counted."""

NOTHING_COMPARED = "nothing was compared: of one side or both no package is known"

_LABEL = 9


def format_text(difference: Difference, *, verbose: int, quiet: bool, color: bool, width: int) -> str:
    """Format a comparison for a terminal."""
    writer = _Writer(difference, verbose=verbose, color=color, width=width)
    return "\n".join(writer.brief() if quiet else writer.lines()) + "\n"


class _Writer(Terminal):
    def __init__(self, difference: Difference, *, verbose: int, color: bool, width: int) -> None:
        super().__init__(color=color, width=width, verbose=verbose)
        self.difference = difference

    def brief(self) -> Iterator[str]:
        for change in self.difference.findings:
            if change.kind != STAYED or change.changed:
                finding = change.finding
                parts = (
                    translate(change.kind.upper()),
                    severity_text(finding),
                    finding.rule_id,
                    translate(change_text(change)),
                )
                yield " ".join(part for part in parts if part)
        unread = (entry for entry in skipped_of(self.difference) if entry.named)
        yield from (" ".join(translate(f"NOT READ {entry.source}: {entry.reason}").split()) for entry in unread)
        yield from fill(closing_line(self.difference), self.width)
        yield from fill(ending(self.difference), self.width)

    def lines(self) -> Iterator[str]:
        difference = self.difference
        yield from (self.paint(line, "1") for line in fill(" → ".join(difference.names), self.width))
        yield ""
        entered, left, stayed = (difference.of_kind(kind) for kind in (ENTERED, LEFT, STAYED))
        changed = tuple(change for change in stayed if change.changed)
        same = tuple(change for change in stayed if not change.changed)
        for title, changes, show in (
            ("entered", entered, self.entered),
            ("changed", changed, self.changed),
            ("left", left, self.left),
        ):
            if changes:
                possible = [change for change in changes if change.finding.status == "possible"]
                folded = [change for change in possible if change.finding.folded]
                open_ones = [change for change in possible if not change.finding.folded]
                hidden = [] if self.verbose or title == "changed" else [*folded, *open_ones[MAX_POSSIBLE:]]
                more = ", all possible; -v lists them" if len(hidden) == len(changes) else ""
                yield self.paint(translate(f"{len(changes)} {title}"), "1") + translate(more)
                for change in changes:
                    yield from show(change) if change not in hidden else ()
                if hidden and not more:
                    yield from self.wrapped("possible", f"{len(hidden)} more depend on unknown facts; -v shows them")
                yield ""
        if same:
            shown = same if self.verbose else tuple(change for change in same if change.finding.status == "affected")
            rest = len(same) - len(shown)
            more = "" if not rest else translate(f", {'all' if not shown else rest} possible; -v lists them")
            yield self.paint(translate(f"{len(same)} stayed"), "1") + more
            yield from (line for change in shown for line in self.head(change.finding))
            yield ""
        yield from self.facts()
        yield from self.packages()
        if difference.peaks is not None:
            yield self.paint(translate(f"peak allocated on a device, {method_text(difference.peaks)}"), "1")
            yield from (f"  {line}" for line in fill(peaks_text(difference.peaks), self.width - 2))
            yield ""
        notes = skipped_of(difference)
        yield from (line for note in notes for line in self.wrapped("not read", str(note)))
        yield from [""] if notes else []
        yield from fill(closing_line(difference), self.width)
        yield from fill(ending(difference), self.width)

    def head(self, finding: Finding, size: str | None = None) -> Iterator[str]:
        return self.heading(finding, size_text(finding.impact) if size is None else size, indent="  ")

    def entered(self, change: FindingChange) -> Iterator[str]:
        finding = change.finding
        yield from self.head(finding)
        yield from (f"    {line}" for line in fill(finding.title, self.width - 4))
        yield from self.details(finding)

    def details(self, finding: Finding) -> Iterator[str]:
        if finding.needs:
            yield from self.wrapped("if", needs_text(finding.needs))
        causes = [fact_text(fact) for fact in finding.facts if "." not in fact.name]
        if causes:
            yield from self.wrapped("because", ", ".join(causes))
        if finding.remedies:
            remedy = finding.remedies[0]
            yield from self.wrapped("fix", remedy.text)
            if remedy.command:  # on a line of its own, for a command is never broken
                yield f"{' ' * (_LABEL + 6)}{self.paint(remedy.command, '1')}"
        if finding.suppressed is not None:
            yield from self.wrapped("waived", finding.suppressed.reason)

    def changed(self, change: FindingChange) -> Iterator[str]:
        yield from self.head(change.finding, change_text(change))
        yield from self.details(change.finding)

    def left(self, change: FindingChange) -> Iterator[str]:
        yield from self.head(change.finding)
        yield from (f"    {line}" for line in fill(change.finding.title, self.width - 4))

    def facts(self) -> Iterator[str]:
        flipped = [change for change in self.difference.facts if change.flipped]
        others = [change for change in self.difference.facts if not change.flipped]
        if flipped:
            yield self.paint(translate(f"{len(flipped)} default{'s' if len(flipped) > 1 else ''} flipped"), "1")
            yield from (line for change in flipped for line in self.fact(change))
            yield ""
        if others and self.verbose:
            yield self.paint(translate("other facts"), "1")
            yield from (line for change in others for line in self.fact(change))
            yield ""

    def fact(self, change: FactChange) -> Iterator[str]:
        text = f"{change.before.name} {value_text(change.before.value)} → {value_text(change.after.value)}"
        yield from (f"  {line}" for line in fill(text, self.width - 2))
        yield from (f"    {self.paint(line, '2')}" for line in fill(places_text(change), self.width - 4))

    def packages(self) -> Iterator[str]:
        packages = self.difference.packages
        if not packages:
            yield self.paint(translate("no package changed"), "1")
            yield ""
            return
        shown = packages if self.verbose else tuple(change for change in packages if change.known)
        yield self.paint(translate(f"{len(packages)} package{'s' if len(packages) > 1 else ''} changed"), "1")
        room = max((len(change.name) for change in shown), default=0)
        for change in shown:
            yield f"  {change.name:<{room}}  {translate(self.version_text(change))}"
        if len(shown) < len(packages):
            yield f"  {translate(f'{len(packages) - len(shown)} that no rule is about; -v lists them')}"
        yield ""

    def version_text(self, change: PackageChange) -> str:
        return versions_text(change, self.difference)

    def wrapped(self, label: str, text: str) -> Iterator[str]:
        head = f"    {self.paint(pad(translate(label), _LABEL), '2')}"
        for line in fill(text, self.width - _LABEL - 4):
            yield f"{head}{line}"
            head = " " * (_LABEL + 4)


def change_text(change: FindingChange) -> str:
    """Say how a finding changed: ``possible → affected``, ``1.00 GiB → 4.00 GiB (+3.00 GiB) per rank``; else its size."""
    parts = [" → ".join(pair) for pair in (change.statuses, change.severities) if pair is not None]
    if change.waived is not None:
        parts.append("waived now" if change.waived[1] else "no longer waived")
    if change.sizes is not None and change.finding.impact is not None:
        parts.append(f"{growth_text(*change.sizes)} per {change.finding.impact.scope}")
    return ", ".join(parts) or size_text(change.finding.impact)


def growth_text(before: int, after: int) -> str:
    """Write a size before and after, and what was added: ``1.00 GiB → 4.00 GiB (+3.00 GiB)``."""
    sign = "+" if after > before else ""
    return f"{format_bytes(before)} → {format_bytes(after)} ({sign}{format_bytes(after - before)})"


def peaks_text(peaks: tuple[Estimate, Estimate]) -> str:
    """Write the expected peaks before and after, as ``torch.cuda.max_memory_allocated`` would report them."""
    return growth_text(*(estimate.allocated.expected for estimate in peaks))


def draw_difference(difference: Difference) -> list[Figure]:
    """Draw the peaks before and after against what a device has; nothing where no run is described."""
    bars = []
    for name, estimate in zip(difference.names, difference.peaks or (), strict=False):
        every = [make_bar(name, phase, ("reserve", "context", "other")) for phase in estimate.phases]
        bars.append(max(every, key=lambda bar: bar.size.expected))
    if difference.peaks is None:
        return []
    title = f"Peak allocated, {method_text(difference.peaks)}: {peaks_text(difference.peaks)}"
    limit = difference.peaks[1].verdict.limit_bytes
    return [draw_bars("peaks", title, bars, limit, what="allocated")]


def method_text(peaks: tuple[Estimate, Estimate]) -> str:
    """Say how peaks became known."""
    return (
        "traced" if all(estimate.method == "traced" for estimate in peaks) else "estimated, known regressions included"
    )


def versions_text(change: PackageChange, difference: Difference) -> str:
    """Write the release before and after; a complete side without the package lacks it, another one does not say."""
    words = []
    for version, report in ((change.before, difference.before), (change.after, difference.after)):
        complete = all(subject.complete for subject in report.subjects)
        words.append("absent" if complete else "not stated") if version is None else words.append(version or "any")
    return " → ".join(words)


def places_text(change: FactChange) -> str:
    """Say whose values these are on both sides, with the releases."""
    before, after = translate(place_text(change.before)), translate(place_text(change.after))
    return before if before == after else f"{before} → {after}"


def skipped_of(difference: Difference) -> list[Skipped]:
    """Return what was not read of either side; what was said of both is said once."""
    return list(dict.fromkeys((*difference.before.skipped, *difference.after.skipped)))


def closing_line(difference: Difference) -> str:
    """Return the line a comparison ends with: counts, threshold, database, time."""
    entered, left, stayed = (len(difference.of_kind(kind)) for kind in (ENTERED, LEFT, STAYED))
    failing = sum(change.newly_fails for change in difference.findings)
    report = difference.after
    return (
        f"compatcheck: {entered} entered, {left} left, {stayed} stayed, {failing} newly at or above --fail-on "
        f"{report.threshold} · db {report.database_date} ({report.database_rules} rules, {report.database_id}) · "
        f"{difference.seconds:.2f} s"
    )


def ending(difference: Difference) -> str:
    """Return the last line of a comparison: the exit code and its reason."""
    return f"exit {difference.exit_code}: {reason_text(difference)}"


def reason_text(difference: Difference, quote: str = "") -> str:
    """Say why a comparison has its exit code, with the sign in which options are quoted."""
    failing = sum(change.newly_fails for change in difference.findings)
    threshold = f"at or above {quote}--fail-on {difference.after.threshold}{quote}"
    if failing:
        return f"{failing} finding{'s' if failing > 1 else ''} newly {threshold}"
    if difference.exit_code == EXIT_NOTHING_TO_CHECK:
        return NOTHING_COMPARED
    if difference.exit_code == EXIT_UNREADABLE_INPUT:
        unread = sum(entry.named for entry in skipped_of(difference))
        return f"{unread} input{'' if unread == 1 else 's'} could not be read"
    return f"nothing new {threshold}"


def format_markdown(difference: Difference) -> str:
    """Format a comparison as Markdown for a comment of a pull request."""
    return "\n".join(_markdown(difference)).rstrip("\n") + "\n"


def _markdown(difference: Difference) -> Iterator[str]:
    entered, left, stayed = (difference.of_kind(kind) for kind in (ENTERED, LEFT, STAYED))
    yield f"## compatcheck: {reason_text(difference, quote='`')}"
    yield ""
    yield f"{escape(difference.names[0])} → {escape(difference.names[1])}"
    yield ""
    changed = [change for change in stayed if change.changed]
    yield from _table("Entered", entered, _size, fixes=True)
    yield from _table("Changed", changed, change_text, fixes=True)
    yield from _table("Left", left, _size, fixes=False)
    flipped = [change for change in difference.facts if change.flipped]
    if flipped:
        yield "### Defaults that flipped"
        yield ""
        yield from table(
            ("fact", "before", "after", "whose"),
            (
                _cells(
                    change.before.name,
                    value_text(change.before.value),
                    value_text(change.after.value),
                    places_text(change),
                )
                for change in flipped
            ),
        )
    if difference.peaks is not None:
        method = method_text(difference.peaks)
        yield f"**Peak allocated on a device** ({method}): {escape(peaks_text(difference.peaks))}"
        yield ""
    known = [change for change in difference.packages if change.known]
    others = [change for change in difference.packages if not change.known]
    if known:
        yield "### Packages"
        yield ""
        yield from _package_rows(known, difference)
    if others:
        rows = _package_rows(others, difference)
        yield from _folded(f"{len(others)} more package{'s' * (len(others) > 1)} that no rule is about", rows)
    same = [change for change in stayed if not change.changed]
    if same:
        rows = table(
            ("severity", "rule", "size"),
            ((_severity(change), rule_link(change.finding), escape(_size(change))) for change in same),
        )
        yield from _folded(f"{len(same)} finding{'s' * (len(same) > 1)} stayed", rows)
    notes = skipped_of(difference)
    if notes:
        yield "### Not read"
        yield ""
        yield from (f"- {escape(str(note))}" for note in notes)
        yield ""
    yield escape(closing_line(difference))


def _table(
    title: str, changes: Iterable[FindingChange], size: Callable[[FindingChange], str], *, fixes: bool
) -> Iterator[str]:
    changes = tuple(changes)
    if not changes:
        return
    yield f"### {title}"
    yield ""
    yield from table(
        ("severity", "rule", "what", "size", *(["fix"] if fixes else [])),
        (
            (
                _severity(change),
                rule_link(change.finding),
                *_cells(change.finding.title, size(change), *([_fix(change.finding)] if fixes else [])),
            )
            for change in changes
        ),
    )


def _cells(*texts: str) -> tuple[str, ...]:
    return tuple(map(escape, texts))


def _package_rows(changes: Iterable[PackageChange], difference: Difference) -> Iterator[str]:
    rows = (_cells(change.name, versions_text(change, difference)) for change in changes)
    return table(("package", "release"), rows)


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield "<details>"
    yield f"<summary>{title}</summary>"
    yield ""
    yield from lines
    yield "</details>"
    yield ""


def _severity(change: FindingChange) -> str:
    finding = change.finding
    words = finding.severity if finding.status == "affected" else f"{finding.severity}, possible"
    return words if finding.suppressed is None else f"{words}, waived"


def _size(change: FindingChange) -> str:
    return size_text(change.finding.impact)


def _fix(finding: Finding) -> str:
    if finding.needs:
        return f"decided by {needs_text(finding.needs)}"
    return finding.remedies[0].text if finding.remedies else ""


def format_json(difference: Difference) -> str:
    """Format a comparison as JSON, as ``difference.schema.json`` describes it."""
    return json.dumps(_describe(difference), indent=2, ensure_ascii=False) + "\n"


def _describe(difference: Difference) -> dict[str, object]:
    after = difference.after
    return {
        **describe_origin(after),
        "before": _describe_side(difference.names[0], difference.before),
        "after": _describe_side(difference.names[1], after),
        "packages": [
            {"name": change.name, "before": change.before, "after": change.after, "known_to_rules": change.known}
            for change in difference.packages
        ],
        "findings": [_describe_change(change) for change in difference.findings],
        "facts": [
            {
                "name": change.before.name,
                "role": change.role,
                "flipped_default": change.flipped,
                "before": describe_fact(change.before),
                "after": describe_fact(change.after),
            }
            for change in difference.facts
        ],
        "peaks": None
        if difference.peaks is None
        else {
            side: {"method": estimate.method, "allocated_bytes": estimate.allocated._asdict()}
            for side, estimate in zip(("before", "after"), difference.peaks, strict=True)
        },
        "summary": {
            **{kind: len(difference.of_kind(kind)) for kind in (ENTERED, LEFT, STAYED)},
            "newly_failing": sum(change.newly_fails for change in difference.findings),
            "flipped_defaults": sum(change.flipped for change in difference.facts),
            "fail_on": after.threshold,
            "strict": after.strict,
            "exit_code": difference.exit_code,
            "policy": after.policy,
            "seconds": round(difference.seconds, 3),
        },
    }


def _describe_side(name: str, report: Report) -> dict[str, object]:
    subject = report.subjects[0]
    return {
        "name": name,
        "origin": subject.origin,
        "python": subject.python,
        "complete": subject.complete,
        "skipped": describe_skipped(report.skipped),
    }


def _describe_change(change: FindingChange) -> dict[str, object]:
    sizes = change.sizes
    return {
        "change": change.kind,
        "rule_id": change.finding.rule_id,
        "role": change.finding.role,
        "newly_fails": change.newly_fails,
        "grown_by_bytes": None if sizes is None else sizes[1] - sizes[0],
        "before": None if change.before is None else describe_finding(change.before),
        "after": None if change.after is None else describe_finding(change.after),
    }
