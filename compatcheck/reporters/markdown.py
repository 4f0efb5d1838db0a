"""The report as Markdown, for job summaries and comments: a table of what counts, details folded away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.headline import find_worst, open_lines, reason_text, worst_text
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.summary import (
    assumptions_in_words,
    because_text,
    choose,
    closing_line,
    fit_text,
    measured_text,
    needs_text,
    size_text,
    worst_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.core.advisory import Audit
    from compatcheck.core.report import Finding, Report

LIMIT_BYTES = 1024 * 1024
"""Most that a GitHub job summary takes; more makes the upload fail as a whole."""

_SPECIAL = lazy_compile(r"([\\`*_{}\[\]<>#|~$@])")
_POINTER_BYTES = 1024


def format_report(report: Report) -> str:
    """Format a report as Markdown of at most ``LIMIT_BYTES`` bytes; what is left out is counted and pointed to."""
    head = _storable("\n".join(_head(report)) + "\n")
    tail = _storable(f"\n{escape(closing_line(report))}\n")
    room = LIMIT_BYTES - _POINTER_BYTES - len(tail.encode())
    text = head
    if len(head.encode()) > room:
        text = head.encode()[:room].decode(errors="ignore").rpartition("\n")[0] + "\n"
        return f"{text}\nThe table is cut off here; `--output json:FILE` writes all of it.\n{tail}"
    waived = (finding for finding in report.findings if finding.suppressed is not None)
    findings = [*choose(report.findings).shown, *sorted(waived, key=worst_first)]
    size = len(head.encode())
    for index, finding in enumerate(findings):
        block = _storable("\n".join(_details(finding)) + "\n")
        size += len(block.encode())
        if size > room:
            left = len(findings) - index
            text += f"\nThe details of {left} more findings are left out; `--output json:FILE` writes all of them.\n"
            break
        text += block
    return text + tail


def _head(report: Report) -> Iterator[str]:
    yield f"## compatcheck: {escape(reason_text(report))}"
    yield ""
    worst, several = find_worst(report), len(report.subjects) > 1
    if worst is not None:
        yield escape(f"worst: {worst_text(report, worst)}")
        yield ""
    fits = [(subject, text) for subject in report.subjects if (text := fit_text(subject)) is not None]
    yield from (f"- {escape(f'{subject.id}: {text}' if several else text)}" for subject, text in fits)
    left_out = open_lines(report)
    yield from (f"- {escape(line)}" for line in left_out)
    if fits or left_out:
        yield ""
    choice = choose(report.findings)
    for title, chosen in (
        ("Findings", [item for item in choice.shown if item.status == "affected" and not item.advice]),
        ("Advice", [item for item in choice.shown if item.advice]),
        ("Possible", [item for item in choice.shown if item.status == "possible"]),
        ("Waived", sorted((item for item in report.findings if item.suppressed is not None), key=worst_first)),
    ):
        if chosen:
            yield from _table(title, chosen, several=several)
    if choice.rest is not None:
        yield escape(f"Not shown: {choice.rest}; --output json:FILE has them.")
        yield ""
    if report.audit is not None:
        yield from _security(report.audit, several=len(report.subjects) > 1)
    if report.skipped:
        yield "### Not checked"
        yield ""
        for entry in report.skipped:
            yield f"- {escape(str(entry))}"
        yield ""
    if report.waiver_notes:
        yield "### Waivers"
        yield ""
        yield from (f"- {escape(note)}" for note in report.waiver_notes)
        yield ""


def _security(audit: Audit, *, several: bool) -> Iterator[str]:
    from compatcheck.core.advisory import audit_text, fold_advisories, fold_unaudited  # noqa: PLC0415 (with --security)

    yield "### Security"
    yield ""
    yield escape(audit_text(audit))
    yield ""
    folded = fold_advisories(audit.advisories)
    if folded:
        columns = ["advisory", "package", "fixed in", "what", *(["where"] if several else [])]
        rows = []
        for advisory, subjects in folded:
            name = escape(advisory.id) if advisory.url is None else f"[{escape(advisory.id)}]({_url(advisory.url)})"
            waived = "" if advisory.suppressed is None else f"waived: {advisory.suppressed.reason}. "
            package, fixed = f"{advisory.package} {advisory.version}", ", ".join(advisory.fixed_versions) or "not known"
            cells = [package, fixed, waived + advisory.description, *([", ".join(subjects)] if several else [])]
            rows.append([name, *map(escape, cells)])
        yield from table(columns, rows)
    for reason, names in fold_unaudited(audit.unaudited):
        yield f"- not audited: {escape(reason)}: {escape(', '.join(names))}"
    yield from (f"- {escape(note)}" for note in audit.notes)
    if audit.unaudited or audit.notes:
        yield ""


def _table(title: str, findings: list[Finding], *, several: bool) -> Iterator[str]:
    last = {"Findings": "fix", "Advice": "what helps", "Possible": "decided by", "Waived": "reason"}[title]
    columns = ["severity", "rule", "what", "size", last, *(["where"] if several else [])]
    yield f"### {title}"
    yield ""
    rows = []
    for finding in findings:
        cells = [finding.severity, rule_link(finding), escape(finding.title), escape(size_text(finding.impact))]
        cells.append(escape(_last_cell(title, finding)))
        if several:
            cells.append(escape(finding.subject + (" (not counted)" if finding.aside else "")))
        rows.append(cells)
    yield from table(columns, rows)


def _last_cell(title: str, finding: Finding) -> str:
    if title == "Waived":
        reason = finding.suppressed.reason if finding.suppressed is not None else ""
        expires = finding.suppressed.expires if finding.suppressed is not None else None
        return f"{reason} (until {expires})" if expires else reason
    if title == "Possible":
        return needs_text(finding.needs)
    return finding.remedies[0].text if finding.remedies else ""


def table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Write a table; cells are Markdown already."""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + " --- |" * len(columns)
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""


def rule_link(finding: Finding) -> str:
    """Write a rule's id as a link to its first source."""
    name = escape(finding.rule_id)
    return f"[{name}]({_url(finding.references[0].url)})" if finding.references else name


def _url(url: str) -> str:
    return re.sub(r"[\s()<>|\\]", lambda match: f"%{ord(match[0]):02X}", url)


def _details(finding: Finding) -> Iterator[str]:
    state = "" if finding.status == "affected" else " (possible)"
    yield "<details>"
    yield f"<summary>{finding.severity}{state}: {_html(finding.rule_id)}, {_html(finding.subject)}</summary>"
    yield ""
    yield from (escape(paragraph) + "\n" for paragraph in finding.message.strip().split("\n\n") if paragraph.strip())
    yield from (f"- because {escape(because_text(fact))}" for fact in finding.facts)
    if finding.rating is not None:
        yield f"- critical: {escape(finding.rating)}"
    yield from (f"- assumed: {escape(assumption)}" for assumption in assumptions_in_words(finding))
    if finding.measured_here is not None:
        yield f"- measured {escape(measured_text(finding.measured_here))}"
    for remedy in finding.remedies:
        note = f" ({remedy.note})" if remedy.note else ""
        yield f"- fix: {escape(remedy.text + note)}" + (f": {_code(remedy.command)}" if remedy.command else "")
    yield from (f"- not true: {escape(title)}" for _, title in finding.folklore)
    yield from (f"- see <{_url(reference.url)}>" for reference in finding.references)
    yield ""
    yield "</details>"
    yield ""


def escape(text: str) -> str:
    """Write a text so that Markdown and HTML show it as it is, on one line; ``@name`` notifies nobody."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[1])};", " ".join(text.replace("&", "&amp;").split()))


def _storable(text: str) -> str:
    """Write what is no Unicode (a file name in another encoding) as escapes, so that the size in bytes is known."""
    return text.encode("utf-8", "backslashreplace").decode()


def _html(text: str) -> str:
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())


def _code(text: str) -> str:
    """Write a command as code, whatever backticks it holds."""
    text = " ".join(text.split())
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
