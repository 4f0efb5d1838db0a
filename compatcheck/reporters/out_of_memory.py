"""What `compatcheck oom` found, for a terminal, for a comment, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.columns import measure, pad
from compatcheck.core.effects import MAJOR_RELEASE, MINOR_RELEASE, OLDER_RELEASE, PATCH_RELEASE
from compatcheck.core.language import translate
from compatcheck.core.out_of_memory import CUT, NO_MESSAGE, TOLD, Explained
from compatcheck.core.units import format_bytes
from compatcheck.reporters.json import describe_skipped
from compatcheck.reporters.markdown import table
from compatcheck.reporters.plain_data import pick
from compatcheck.reporters.plan import change_text
from compatcheck.reporters.text import wrap, wrap_names, wrap_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compatcheck.core.out_of_memory import (
        Account,
        Disagreement,
        Match,
        Message,
        MessageReading,
        OutOfMemoryReport,
        Printed,
        ReleaseChange,
    )

SCHEMA_VERSION = "1"
_WIDTH = 80
_INDENT = 14
_ACCOUNT_INDENT = 32
_MOMENTS = 8
"""Moments that are shown."""
_QUOTE = 100
"""Characters of a line that are quoted."""
_CAUSES = {
    "need": "the run needs more than the device has",
    "nearly_full": "the device is nearly full",
    "larger_than_device": "one tensor is larger than the whole device",
    "memory_limit": "a memory limit of the process",
    "refused_with_free_memory": "refused although enough was free",
    "other_processes": "other processes hold the memory",
    "outside_allocator": "this process holds memory outside PyTorch's allocator",
    "foreign_memory": "memory is held outside this process's allocator",
    "fragmentation": "fragmentation of the allocator's memory",
    "unclear": "not clear from the message",
}
_OUTCOMES = {"named": "", "tied": "one of", "not_derivable": "not derivable", "no_size": ""}
_RELATIONS = {
    "size": "costs just the size asked for",
    "tensor": "is about this tensor",
    "phase": "bites in this phase",
    "other": "",
}


def format_text(report: OutOfMemoryReport) -> str:
    """Format for a terminal."""
    return "\n".join(_text(report)) + "\n"


def _text(report: OutOfMemoryReport) -> Iterator[str]:
    for index, reading in enumerate(report.readings):
        if index:
            yield ""
        yield from _reading(reading, report, main=index == report.primary and len(report.readings) > 1)
    lines = list(_account(report.account))
    if lines:
        yield ""
        yield translate("what the log accounts for itself")
    for label, words in lines:
        first = f"  {translate(label)}"
        if measure(first) >= _ACCOUNT_INDENT:
            yield from wrap_names(first, rest="    ")
            first = ""
        yield from wrap(words, _WIDTH, pad(first, _ACCOUNT_INDENT), " " * _ACCOUNT_INDENT, break_on_hyphens=False)
    yield ""
    yield from _entry("model", report.model or "not known: give --model with a name or a config.json", indent="")
    if report.unknown_models:
        names = ", ".join(report.unknown_models[:3])
        yield from _entry(
            "", f"the log names {names}, whose dimensions are not known here: give its config.json with --model", ""
        )
    for index, one in enumerate(report.disagreements):
        yield from _entry("" if index else "disagrees", _disagreement(one), indent="")
    if report.disagreements:
        yield from _entry("", _DISAGREE, indent="")
    for index, words in enumerate(_to_change(report)):
        yield from _entry("" if index else "to change", words, indent="")
    if report.findings:
        yield ""
        yield translate("known problems of this stack that may explain it")
        for explained in report.findings:
            yield from _finding(explained)
    for change in report.changes:
        yield ""
        yield from wrap(_between(change), _WIDTH, break_on_hyphens=False)
        for finding in change.enter:
            yield from _finding(Explained(finding, "other"))
    for entry in report.skipped:
        yield from wrap_names(f"not read: {entry}", "", "  ")


def _account(account: Account) -> Iterator[tuple[str, str]]:
    """Yield what the log says of the device's memory: parts of engines, then the latest moments; what grows first."""
    for held in account.held:
        yield held.part, f"{format_bytes(held.size_bytes)}, {held.writer}, line {held.line}"
    latest = sorted(account.series, key=lambda one: (not one.grows, -one.last_line))
    for one in sorted(latest[:_MOMENTS], key=lambda one: (not one.grows, one.last_line)):
        of = "" if account.total_bytes is None or one.kind == "free" else f" of {format_bytes(account.total_bytes)}"
        if one.times == 1:
            words = f"{format_bytes(one.first_bytes)}{of} {one.kind}, line {one.first_line}"
        else:
            change = f"{format_bytes(one.first_bytes)} to {format_bytes(one.last_bytes)}{of} {one.kind}"
            words = f"{change}, {one.times} times, lines {one.first_line} to {one.last_line}"
        yield one.moment or one.writer, words + (f"; {_GROWS}" if one.grows else "")
    if len(latest) > _MOMENTS:
        yield "", f"{len(latest) - _MOMENTS} more moments (--format json)"


_GROWS = "grows from time to time, as what is never freed does"


def _to_change(report: OutOfMemoryReport) -> Iterator[str]:
    """Yield what to change, the surest first."""
    for relief in report.relief:
        yield relief.words + (f" ({relief.source})" if relief.source is not None else "")
    for one in report.suggestions:
        words = " + ".join(change_text(change) for change in one.changes if not change.follows)
        effect = (
            "" if one.effect in {PATCH_RELEASE, MINOR_RELEASE, MAJOR_RELEASE, OLDER_RELEASE} else f" ({one.effect})"
        )  # the words of a move say it
        yield f"{words}{effect}: saves {format_bytes(one.saved_bytes)} by the estimate{_OUTCOME[one.outcome]}"


_DISAGREE = "what follows takes the inputs at their word: are they of the run that wrote the log?"


def _disagreement(one: Disagreement) -> str:
    place = "" if one.source is None else f" ({one.source})"
    return f"{one.name}: the log tells of {one.logged}, the inputs of {one.stated}{place}"


def _between(change: ReleaseChange) -> str:
    """Say what the releases are that a log names."""
    said = "may enter" if change.enter else "no known problem of this stack enters"
    return f"{said} between {change.package} {change.before} and {change.after}, both named here"


_OUTCOME = {
    "fits": ", then fits",
    "marginal": ", then may not fit",
    "does_not_fit": ", not enough alone",
    "unknown": "",
}


def _reading(reading: MessageReading, report: OutOfMemoryReport, *, main: bool) -> Iterator[str]:
    message = reading.message
    stream = f" {message.stream}" if message.stream else ""
    head = f"{report.log}:{message.line}{stream}  {title(message)}"
    notes = [note for note in (message.releases, f"{message.times} times" if message.times > 1 else None) if note]
    head += (f"  ({', '.join(notes)})" if notes else "") + ("  <- explains the failure" if main else "")
    yield from wrap_names(head, rest="  ")
    yield from _entry("asked for" if message.asked else "means", _answer(reading))
    for match in reading.matches:
        yield from _entry("", describe_match(match))
    if reading.chance is not None and reading.outcome != "no_size":
        words = f"{reading.tried} candidates tried; {reading.chance:.1%} of sizes near this one match one by accident"
        yield from _entry("", words)
    if reading.place is not None:
        part = "" if reading.place.part == reading.place.phase else f", {reading.place.part.replace('_', ' ')}"
        yield from _entry("where", f"{reading.place.phase}{part}: {reading.place.why}")
    elif message.frames:
        yield from _entry("where", "no frame of the traceback tells the phase")
    if reading.budget is not None:
        yield from _entry("cause", f"{_CAUSES[reading.budget.cause]}: {reading.budget.reason}")
        if reading.budget.ruled_out:
            yield from _entry("", f"ruled out: {', '.join(reading.budget.ruled_out)}")
    for remark in reading.remarks:
        yield from _entry("also", remark)
    if reading.needs:
        yield from _entry(
            "would help", ", ".join(need if need.startswith("-") else f"--set {need}=…" for need in reading.needs)
        )
    if reading.question:
        yield from _entry("question", reading.question)


def title(message: Message) -> str:
    """Say in one line what a message is."""
    if message.form == TOLD:
        said = dict(message.details)["words"]
        short = said if len(said) <= _QUOTE else f"{said[: _QUOTE - 1]}…"
        return f"{'host memory, ' if message.memory == 'host' else ''}told in words: {short}"
    if message.form == CUT:
        return "a traceback without its end"
    if message.form == "torch-summary":
        return f"{message.allocator}: no failure"
    if message.form in {"sglang-decode", "sglang-retract"}:
        return f"{message.allocator}: its pool of tokens was full"
    if message.form == NO_MESSAGE:
        return "no message about memory"
    if message.memory == "none":
        return f"{message.allocator}: looks like a shortage of memory and is none"
    if message.memory == "unknown":
        return f"{message.allocator}: a worker died; memory is one of the causes it lists"
    asked = f", asked for {message.asked.text}" if message.asked is not None else ""
    memory = {"device": "device memory", "host": "host memory", "shm": "shared memory"}[message.memory]
    words = message.allocator if memory in message.allocator else f"{message.allocator}: {memory} exhausted"
    return f"{words}{asked}"


def _answer(reading: MessageReading) -> str:
    lead = _OUTCOMES[reading.outcome]
    return f"{lead}: {reading.reason}" if lead else reading.reason


def describe_match(match: Match) -> str:
    """Write a tensor as ``fp32 logits [1, 16384, 152064] = [names], 9,965,666,304 bytes``."""
    shape = "[" + ", ".join(map(str, match.shape)) + "]"
    inferred = f"; solved for {', '.join(match.inferred)}" if match.inferred else ""
    elsewhere = "" if match.fits_place else "; does not arise where the traceback points"
    return f"{match.name} {shape} = {match.formula}, {match.size_bytes:,} bytes{inferred}{elsewhere}"


def _entry(label: str, text: str, indent: str = "  ") -> Iterator[str]:
    first = pad(f"{indent}{translate(label)}", _INDENT)
    yield from wrap(text, _WIDTH, first, " " * _INDENT, break_on_hyphens=False)


def _finding(explained: Explained) -> Iterator[str]:
    finding, relation = explained.finding, _RELATIONS[explained.relation]
    size = ""
    if finding.impact is not None and finding.impact.expected_bytes is not None:
        size = translate(", ") + format_bytes(finding.impact.expected_bytes)
    head = finding.rule_id + translate(" (") + translate(finding.status) + size + translate(")")
    yield from wrap_names(head + (translate(": ") + translate(relation) if relation else ""), "  ", "    ")
    yield from wrap_text(finding.title, 4, 4)
    for remedy in finding.remedies[:1]:
        yield from wrap_text(f"remedy: {remedy.text}", 4, 4)


def format_markdown(report: OutOfMemoryReport) -> str:
    """Format for a comment in an issue."""
    rows = []
    for reading in report.readings:
        named = "; ".join(describe_match(match) for match in reading.matches if reading.outcome != "not_derivable")
        place = reading.place
        cells = (
            str(reading.message.line),
            title(reading.message),
            (f"{_answer(reading)}: {named}" if named else _answer(reading)),
            "" if place is None else f"{place.phase}, {place.part}",
            "" if reading.budget is None else _CAUSES[reading.budget.cause],
        )
        rows.append([cell.replace("|", "\\|") for cell in cells])
    lines = [*table(("line", "message", "asked for", "where", "cause"), rows)]
    lines.append(f"Model: {report.model or 'not known'}.")
    accounted = [f"- {label}: {words}".replace("|", "\\|") for label, words in _account(report.account)]
    if accounted:
        lines += ["", "What the log accounts for itself:", "", *accounted]
    if report.disagreements:
        lines += ["", *(f"- {_disagreement(one)}" for one in report.disagreements), "", f"{_DISAGREE.capitalize()}"]
    changes = [f"- {words}" for words in _to_change(report)]
    if changes:
        lines += ["", "To change:", "", *changes]
    if report.findings:
        lines += ["", "Known problems of this stack that may explain it:", ""]
        for explained in report.findings:
            relation = _RELATIONS[explained.relation]
            lines.append(
                f"- `{explained.finding.rule_id}`: {explained.finding.title}" + (f" ({relation})" if relation else "")
            )
    for change in report.changes:
        lines += ["", _between(change) + (":" if change.enter else "."), ""]
        lines += [f"- `{finding.rule_id}`: {finding.title}" for finding in change.enter]
    return "\n".join(lines) + "\n"


def format_json(report: OutOfMemoryReport) -> str:
    """Format as JSON; docs/oom.md describes it."""
    return json.dumps(describe_report(report), indent=2, ensure_ascii=False) + "\n"


def describe_report(report: OutOfMemoryReport) -> dict[str, object]:
    """Describe a report as plain data."""
    readings = [reading for reading in report.readings if reading.message.form != NO_MESSAGE]
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "compatcheck", "version": report.version},
        "log": report.log,
        "model": report.model,
        "unknown_models": list(report.unknown_models),
        "disagreements": [
            {**pick(one, "name logged stated"), "source": None if one.source is None else str(one.source)}
            for one in report.disagreements
        ],
        "messages": [_describe_reading(reading) for reading in readings],
        "account": {
            "total_bytes": report.account.total_bytes,
            "held": [one._asdict() for one in report.account.held],
            "series": [one._asdict() for one in report.account.series],
        },
        "primary": report.primary if readings else None,
        "facts": [
            {**pick(fact, "name value origin"), "source": str(fact.sources[0]) if fact.sources else None}
            for fact in report.facts
        ],
        "findings": [
            {
                **pick(explained.finding, "rule_id title status severity"),
                "relation": explained.relation,
                "expected_bytes": None if explained.finding.impact is None else explained.finding.impact.expected_bytes,
                "needs": list(explained.finding.needs),
            }
            for explained in report.findings
        ],
        "changes": [
            {**pick(one, "package before after"), "enter": [pick(each, "rule_id title status") for each in one.enter]}
            for one in report.changes
        ],
        "relief": [
            {"words": relief.words, "source": None if relief.source is None else str(relief.source)}
            for relief in report.relief
        ],
        "suggestions": [
            {"changes": [change_text(change) for change in one.changes], **pick(one, "effect saved_bytes outcome")}
            for one in report.suggestions
        ],
        "skipped": describe_skipped(report.skipped),
        "summary": {
            "messages": len(readings),
            **{outcome: sum(reading.outcome == outcome for reading in readings) for outcome in _OUTCOMES},
            "exit_code": report.exit_code,
        },
    }


def _describe_reading(reading: MessageReading) -> dict[str, object]:
    message, place, budget = reading.message, reading.place, reading.budget
    sizes = ("asked", "total", "free", "allocated", "reserved", "unallocated", "private_pools", "allowed", "process")
    return {
        "line": message.line,
        "stream": message.stream or None,
        "count": message.times,
        **pick(message, "form allocator memory releases device rounding"),
        "sizes": {name: _describe_size(getattr(message, name)) for name in sizes},
        "processes": [{"pid": pid, **(_describe_size(size) or {})} for pid, size in message.others],
        "details": dict(message.details),
        **pick(reading, "outcome reason"),
        "tensors": [
            {
                **pick(match, "name shape dtype"),
                "bytes": match.size_bytes,
                **pick(match, "formula facts inferred fits_place"),
            }
            for match in reading.matches
        ],
        "candidates_tried": reading.tried,
        **pick(reading, "chance needs"),
        "question": reading.question or None,
        "place": None
        if place is None
        else {**pick(place, "phase part"), **pick(place.frame, "file line function"), "why": place.why},
        "cause": None if budget is None else {"name": budget.cause, **pick(budget, "reason ruled_out foreign_bytes")},
        "remarks": list(reading.remarks),
    }


def _describe_size(size: Printed | None) -> dict[str, object] | None:
    return None if size is None else pick(size, "text low_bytes high_bytes")


def explain_absence(report: OutOfMemoryReport, name: str) -> list[str]:
    """Say that a log of this name has no message about memory, or none in a form that is known, and what to do then."""
    kind = "note" if report.readings else "error"
    told = next((reading.message for reading in report.readings if reading.message.form == TOLD), None)
    if told is None:
        return [f"{kind}: {name}: no message about memory found"]
    said = dict(told.details)["words"][:120]
    return [
        f"{kind}: {name}:{told.line}: speaks of memory in a form that is not known here: {said}",
        "hint: give the error itself with its traceback; `compatcheck oom --help` says where the forms are listed",
    ]


FORMATTERS: dict[str, Callable[[OutOfMemoryReport], str]] = {
    "text": format_text,
    "json": format_json,
    "markdown": format_markdown,
}
