"""The grammar of out-of-memory messages: torch's caching allocator in every era, and the forms of other programs.

Written from the format strings of c10/cuda/CUDACachingAllocator.cpp: 1.0–1.3 ``(GPU 0; … cached)``, 1.4–2.0
``(GPU 0; … reserved in total by PyTorch)``, from 2.1 ``GPU 0 has a total capac(i)ty of … of which … is free.`` with clauses
about processes, a limit and private pools. Forks print the same with another device name.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.out_of_memory import Frame, Message, Printed
from compatcheck.core.pasted_text import fold_case
from compatcheck.core.source import Skipped, Source
from compatcheck.core.units import parse_count
from compatcheck.oom.forms import FORMS, TORCH_NEEDLE, Form
from compatcheck.oom.sizes import SIZE, parse_size, tell_rounding
from compatcheck.oom.text import Stream, find_frames, split_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

_TORCH = re.compile(
    rf"(?:(?:(?P<allocator>\b[A-Z][A-Za-z]{{1,8}}) )?[Oo]ut of memory\.? )?\bTried to allocate (?P<asked>(?i:{SIZE}))",
)
_TORCH_HEAD = 80
"""Characters around the needle in which the start of a message and the size it asked for stand."""
_TAIL_LENGTH = 2500
"""A message with the processes of a whole node stays below this."""
_OLD = re.compile(
    rf"\s?\((?:GPU|NPU|MLU|DCU|XPU|GCU|Device)? ?(?P<device>\S*?); (?P<total>{SIZE}) total capacity; "
    rf"(?P<allocated>{SIZE}) already allocated; (?:{SIZE} current active; )?(?P<free>{SIZE}) free; "
    rf"(?:(?P<allowed>{SIZE}) allowed; )?(?P<reserved>{SIZE}) (?P<word>cached|reserved)",
    re.IGNORECASE,
)
_NEW = re.compile(
    rf"\.? ?(?:GPU|NPU|XPU|Device)\s?(?P<device>\S*?)\s?has a total capac(?P<i>i?)ty of (?P<total>{SIZE}) "
    rf"of which (?P<free>{SIZE}) is free",
    re.IGNORECASE,
)
_PROCESS = re.compile(rf"Process (\d{{1,18}}) has ({SIZE}) memory in use", re.IGNORECASE)
_CLAUSES = {
    "process": re.compile(rf"this process has ({SIZE}) memory in use", re.IGNORECASE),
    "allowed": re.compile(rf"({SIZE}) allowed; Of the", re.IGNORECASE),
    "allocated": re.compile(rf"Of the allocated memory ({SIZE}) is allocated", re.IGNORECASE),
    "private_pools": re.compile(rf"with ({SIZE}) allocated in private pools", re.IGNORECASE),
    "unallocated": re.compile(rf"({SIZE}) is reserved by P", re.IGNORECASE),
}
DISTINCT = 100
"""Messages read from the start and from the end of a log, of those that differ: each costs what a whole explanation does."""
_SAID_AGAIN = 32
"""Equal messages of which one may have the traceback that the first has not: as many ranks as a node or two."""
_COMPILED: dict[str, re.Pattern[str]] = {}
_FORMS = tuple((form, form.needle.split("|")) for form in FORMS)
"""A log of a large cluster has a stream a worker, and each is asked for every needle."""


def read_messages(log: str, place: str = "", skipped: list[Skipped] | None = None) -> tuple[Message, ...]:
    """Read every message of a log, in the order of its lines; equal ones once, with their number.

    Args:
        log: its text.
        place: what it is called.
        skipped: takes what is left out: a log may hold another message on every line.
    """
    found = [said for stream in split_streams(log) for said in _find_said(stream)]
    found.sort(key=lambda said: said.line)
    groups: dict[tuple[object, ...], list[_Said]] = {}
    for said in found:
        groups.setdefault(_tell_apart(said.span), []).append(said)
    kept = list(groups.values())
    if len(kept) > 2 * DISTINCT:
        left_out = kept[DISTINCT:-DISTINCT]
        kept[DISTINCT:-DISTINCT] = []
        if skipped is not None:
            reason = (
                f"{len(left_out)} messages between line {left_out[0][0].line} and {left_out[-1][-1].line} were not read: "
                f"of those that differ, the first and the last {DISTINCT} are"
            )
            skipped.append(Skipped(Source(place), reason, "give the part of the log that you mean", named=True))
    return tuple(map(_merge, kept))


def _merge(group: list[_Said]) -> Message:
    """Return one message for equal ones: with frames and the size of the device where one of the first has them."""
    first, *others = map(_read_said, group[:_SAID_AGAIN])
    for message in others:
        kept, other = (first, message) if first.frames or not message.frames else (message, first)
        if kept.total is None and other.total is not None:
            kept = other._replace(frames=kept.frames)
        first = kept._replace(line=first.line)
    return first._replace(times=len(group))


def has_message(log: str) -> bool:
    """Tell whether a log holds a message."""
    return any(True for stream in split_streams(log) for _ in _find_said(stream))


def _find_said(stream: Stream) -> Iterator[_Said]:
    """Find where messages stand in a stream."""
    lowered = fold_case(stream.text)
    spans = [_Span(match.start(), match.end(), match, None) for match in _find_torch(stream.text, lowered)]
    for form, needles in _FORMS:
        if any(needle in lowered for needle in needles):
            found = _pattern(form).finditer(stream.text)
            spans.extend(_Span(match.start(), match.end(), match, form) for match in found)
    spans.sort(key=lambda span: (span.start, -span.end))
    kept: list[_Span] = []
    for span in spans:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    begin = 0
    for span, following in zip_longest(kept, kept[1:]):
        limit = len(stream.text) if following is None else following.start
        yield _Said(stream, span, stream.line_at(span.start), begin, limit)
        begin = span.end


def _tell_apart(span: _Span) -> tuple[object, ...]:
    """Return what two messages differ in."""
    asked = (span.match.groupdict().get("asked") or "").strip()
    return "torch" if span.form is None else span.form.name, asked, _details(span.match)


def _read_said(said: _Said) -> Message:
    text, span = said.stream.text, said.span
    found = _Found(said.stream.name, said.line, find_frames(text[said.begin : span.start]))
    if span.form is None:
        return _torch_message(span.match, text[span.end : min(said.limit, span.end + _TAIL_LENGTH)], found)
    return _other_message(span.form, span.match, found)


def _find_torch(text: str, lowered: str) -> Iterator[re.Match[str]]:
    begin = 0
    while (asked := lowered.find(TORCH_NEEDLE, begin)) >= 0:
        match = _TORCH.search(text, max(begin, asked - _TORCH_HEAD), asked + _TORCH_HEAD)
        begin = asked + len(TORCH_NEEDLE)
        if match is not None:
            begin = max(begin, match.end())
            yield match


class _Span(NamedTuple):
    """One match in a stream."""

    start: int
    end: int
    match: re.Match[str]
    form: Form | None
    """None for torch's caching allocator."""


class _Said(NamedTuple):
    """One message that is not read yet: a log has thousands of equal ones."""

    stream: Stream
    span: _Span
    line: int
    begin: int
    """Where the message before it in the stream ends."""
    limit: int
    """Where the next one starts."""


class _Found(NamedTuple):
    """Where a message was found."""

    stream: str
    line: int
    frames: tuple[Frame, ...]


def _pattern(form: Form) -> re.Pattern[str]:
    if form.pattern not in _COMPILED:
        _COMPILED[form.pattern] = re.compile(form.pattern, re.IGNORECASE)
    return _COMPILED[form.pattern]


def _torch_message(match: re.Match[str], tail: str, found: _Found) -> Message:
    asked = parse_size(match.group("asked"))
    old, new = _OLD.match(tail), _NEW.match(tail)
    head = old or new
    device = head.group("device") if head is not None else ""
    message = Message(
        form="torch",
        allocator=match.group("allocator") or "CUDA or another device",
        memory="device",
        releases=_releases(old, new, device, tail),
        line=found.line,
        stream=found.stream,
        asked=asked,
        rounding="unknown" if asked is None else tell_rounding(asked),
        device=parse_count(device),
        frames=found.frames,
    )
    if head is not None:
        message = message._replace(total=_size(head, "total"), free=_size(head, "free"))
    if old is not None:
        message = message._replace(allocated=_size(old, "allocated"), allowed=_size(old, "allowed"))
        kept = _size(old, "reserved")
        if old.group("word").lower() == "cached":  # amount_cached - amount_allocated, until 1.3
            return message._replace(unallocated=kept)
        return message._replace(reserved=kept)
    if new is None:
        return message
    clauses, _, _ = tail.partition("Traceback (most")
    said = {name: clause.search(clauses) for name, clause in _CLAUSES.items()}
    sizes = {name: None if value is None else parse_size(value.group(1)) for name, value in said.items()}
    listed = ((int(number), parse_size(text)) for number, text in _PROCESS.findall(clauses))
    return message._replace(
        process=sizes["process"],
        allowed=sizes["allowed"],
        allocated=sizes["allocated"],
        private_pools=sizes["private_pools"],
        unallocated=sizes["unallocated"],
        others=tuple((number, size) for number, size in listed if size is not None),
    )


def _size(match: re.Match[str], name: str) -> Printed | None:
    text = match.groupdict().get(name) or ""
    return parse_size(f"{text} bytes" if text.isdigit() else text)


def _releases(old: re.Match[str] | None, new: re.Match[str] | None, device: str, tail: str) -> str | None:
    """Tell the releases of torch that print a message; the hint at its end is what changed most often."""
    if old is not None:
        if old.group("word").lower() == "cached":
            return "torch 1.0–1.3"
        return "torch 1.11–2.0" if "max_split_size_mb" in tail else "torch 1.4–1.10, or cut off"
    if new is None:
        return None
    if not new.group("i"):
        return "torch 2.1"
    if "PYTORCH_ALLOC_CONF" in tail:
        return "torch 2.10–2.12"
    if not device.isdigit():  # 2.3 prints the index as a bare byte
        return "torch 2.3"
    if "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf" in tail:
        return "torch 2.13 or later"
    return "torch 2.2–2.9" if "PYTORCH_CUDA_ALLOC_CONF" in tail else "torch 2.2 or later, cut off"


def _other_message(form: Form, match: re.Match[str], found: _Found) -> Message:
    groups = {name: value for name, value in match.groupdict().items() if value}
    device = groups.get("device", "")
    asked = _size(match, "asked")
    return Message(
        form=form.name,
        allocator=form.allocator,
        memory=form.memory,
        releases=form.releases,
        line=found.line,
        stream=found.stream,
        asked=asked,
        rounding=form.rounding if asked is not None else "unknown",
        device=parse_count(device),
        total=_size(match, "total"),
        free=_size(match, "free"),
        allocated=_size(match, "allocated"),
        details=_details(match),
        frames=found.frames,
    )


def _details(match: re.Match[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name[2:], value) for name, value in match.groupdict().items() if value and name.startswith("d_"))
