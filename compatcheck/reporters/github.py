"""The report as workflow commands of GitHub Actions: the worst findings annotate their lines, all others are listed.

GitHub keeps ten annotations of each level per step and drops the rest unseen, so the rest is written as plain lines.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.headline import ending, open_lines
from compatcheck.core.summary import choose, closing_line, needs_text, size_text, worst_first
from compatcheck.core.terminal import disarm
from compatcheck.reporters.checkout import find_root, path_in_checkout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.advisory import Audit
    from compatcheck.core.report import Finding, Report
    from compatcheck.core.source import Skipped, Source

MAX_ANNOTATIONS = 10
LEVELS: Mapping[str, str] = {
    "critical": "error",
    "high": "error",
    "medium": "warning",
    "low": "notice",
    "info": "notice",
}


def format_report(report: Report) -> str:
    """Format a report as workflow commands."""
    return "\n".join(_lines(report, find_root(os.getcwd()))) + "\n"


def _lines(report: Report, root: str) -> Iterator[str]:
    choice = choose(report.findings)
    findings = choice.shown
    waived = sorted((item for item in report.findings if item.suppressed is not None), key=worst_first)
    for finding in findings[:MAX_ANNOTATIONS]:
        yield _annotation(finding, root)
    yield from map(_plain, open_lines(report, inputs=False))
    rest = findings[MAX_ANNOTATIONS:]
    if rest:
        yield f"{len(rest)} more findings without an annotation:"
        yield from (_plain(f"  {_label(item)} {item.rule_id} {_message(item)}", item.subject) for item in rest)
    if choice.rest is not None:
        yield _plain(f"not shown: {choice.rest}; --output json:FILE has them")
    for item in waived:
        reason = item.suppressed.reason if item.suppressed is not None else ""
        yield _plain(f"waived {item.rule_id}: {reason}", item.subject)
    if report.audit is not None:
        yield from _audit_lines(report.audit, root, MAX_ANNOTATIONS - min(len(findings), MAX_ANNOTATIONS))
    for entry in report.skipped[:MAX_ANNOTATIONS]:
        yield _skipped(entry, root)
    yield from (_plain(f"not checked {entry.source}: {entry.reason}") for entry in report.skipped[MAX_ANNOTATIONS:])
    yield from (_plain(f"waiver {note}") for note in report.waiver_notes)
    yield _plain(closing_line(report))
    yield _plain(ending(report))


def _audit_lines(audit: Audit, root: str, room: int) -> Iterator[str]:
    """Annotate as many advisories as there is room for; list the others, and what was not audited."""
    from compatcheck.core.advisory import audit_text, fix_text, fold_advisories, fold_unaudited  # noqa: PLC0415 (with --security)
    from compatcheck.reporters.folding import shorten  # noqa: PLC0415 (with --security)

    for advisory, subjects in fold_advisories(audit.advisories):
        about = f"{advisory.id} {advisory.package} {advisory.version}"
        if advisory.suppressed is not None:
            yield _plain(f"waived {about}: {advisory.suppressed.reason}", ", ".join(subjects))
        elif room > 0:
            room -= 1
            message = f"{advisory.description} ({fix_text(advisory)})"
            level = "error" if advisory.fails else "notice"
            yield _command(level, message, f"advisory {about}", _place(advisory.source, root))
        else:
            yield _plain(f"advisory {about}: {fix_text(advisory)}", ", ".join(subjects))
    if audit.unaudited:
        reasons = "; ".join(f"{reason}: {shorten(names)}" for reason, names in fold_unaudited(audit.unaudited))
        level = "warning" if audit.failure is None else "error"
        yield _command(level, f"{audit_text(audit)}: {reasons}", "not audited", None)
    else:
        yield _plain(audit_text(audit))


def _annotation(finding: Finding, root: str) -> str:
    counts = finding.status == "affected" and not finding.aside and not finding.advice
    level = LEVELS[finding.severity] if counts else "notice"
    title = f"{_label(finding)} {finding.rule_id}"
    return _command(level, _message(finding), title, _best_place(finding, root))


def _label(finding: Finding) -> str:
    word = "possible " if finding.status == "possible" else "advice " if finding.advice else ""
    return f"{word}{finding.severity}"


def _message(finding: Finding) -> str:
    size = size_text(finding.impact)
    parts = [f"{finding.title}{f' ({size})' if size else ''}."]
    if finding.needs:
        parts.append(f"Decided by {needs_text(finding.needs)}.")
    parts += [
        f"Fix: {remedy.text}{f': {remedy.command}' if remedy.command else ''}." for remedy in finding.remedies[:1]
    ]
    return " ".join(parts)


def _best_place(finding: Finding, root: str) -> tuple[str, int | None] | None:
    """Return the first place inside the checkout, one with a line if there is any."""
    places = [place for place in (_place(source, root) for source in finding.locations) if place is not None]
    return next((place for place in places if place[1] is not None), places[0] if places else None)


def _place(source: Source, root: str) -> tuple[str, int | None] | None:
    relative = path_in_checkout(source.path, root)
    return None if relative is None else (relative, source.line)


def _skipped(entry: Skipped, root: str) -> str:
    return _command("error" if entry.named else "warning", str(entry), "not checked", _place(entry.source, root))


def _command(level: str, message: str, title: str, place: tuple[str, int | None] | None) -> str:
    properties = {}
    if place is not None:
        properties["file"] = place[0]
        if place[1] is not None:
            properties["line"] = str(place[1])
    properties["title"] = title
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::{level} {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _plain(text: str, subject: str = "") -> str:
    """Write a line the runner takes for no command: none of its lines starts with ``::`` or holds ``##[``."""
    return disarm(" ".join((f"{text} ({subject})" if subject else text).split()))
