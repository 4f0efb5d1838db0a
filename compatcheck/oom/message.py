"""The grammar of out-of-memory messages: torch's caching allocator in every era, and the forms of other programs.

Written from the format strings of c10/cuda/CUDACachingAllocator.cpp: 1.0–1.3 ``(GPU 0; … cached)``, 1.4–2.0
``(GPU 0; … reserved in total by PyTorch)``, from 2.1 ``GPU 0 has a total capac(i)ty of … of which … is free.`` with clauses
about processes, a limit and private pools. Forks print the same with another device name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.out_of_memory import Frame, Message, Printed
from compatcheck.core.pasted_text import fold_case
from compatcheck.core.units import parse_count
from compatcheck.oom.forms import FORMS, TORCH_NEEDLE, Form
from compatcheck.oom.needles import find_speech
from compatcheck.oom.sizes import SIZE, parse_size, tell_rounding
from compatcheck.oom.text import Stream, find_frames, split_streams, windows

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
    "allocated": re.compile(rf"Of the allocated memory ({SIZE}) is allocated by PyTorch", re.IGNORECASE),
    "private_pools": re.compile(rf"with ({SIZE}) allocated in private pools", re.IGNORECASE),
    "unallocated": re.compile(rf"({SIZE}) is reserved by PyTorch but unallocated", re.IGNORECASE),
}
_COMPILED: dict[str, re.Pattern[str]] = {}
_FORMS = tuple((form, form.needle.split("|")) for form in FORMS)
"""A log of a large cluster has a stream a worker, and each is asked for every needle."""


def read_messages(log: str) -> tuple[Message, ...]:
    """Read every message of a log, in the order of its lines; equal ones once, with their number."""
    found = [message for stream in split_streams(log) for message in _read_stream(stream)]
    found.sort(key=lambda message: message.line)
    merged: dict[tuple[object, ...], Message] = {}
    for message in found:
        key = (message.form, message.asked and message.asked.text, message.details)
        first = merged.get(key)
        if first is None:
            merged[key] = message
            continue
        kept = first if first.frames or not message.frames else message
        if (kept.total is None) != (first.total is None or message.total is None):
            kept = first if first.total is not None else message._replace(frames=first.frames or message.frames)
        merged[key] = kept._replace(times=first.times + message.times, line=first.line)
    return tuple(merged.values())


def has_message(log: str) -> bool:
    """Tell whether a log holds a message."""
    return any(True for stream in split_streams(log) for _ in _read_stream(stream))


def find_words(log: str) -> tuple[int, str] | None:
    """Return the first line of a log that speaks of exhausted memory, in whatever form, with its number."""
    said = find_speech(fold_case(log))
    if said is None:
        return None
    before = log[: said + 1].splitlines()
    begin = said + 1 - len(before[-1])
    return len(before), " ".join(log[begin : begin + _TAIL_LENGTH].splitlines()[0].split())


def _read_stream(stream: Stream) -> Iterator[Message]:
    lowered = fold_case(stream.text)
    spans = [_Span(match.start(), match.end(), match, None) for match in _find_torch(stream.text, lowered)]
    for form, needles in _FORMS:
        if any(needle in lowered for needle in needles):
            found = _pattern(form).finditer(stream.text)
            spans.extend(_Span(match.start(), match.end(), match, form) for match in found)
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    before = windows(stream.text, [span.start for span in kept], [span.end for span in kept])
    for index, span in enumerate(kept):
        place = _Found(stream.name, stream.line_at(span.start), find_frames(before[index]))
        if span.form is None:
            limit = kept[index + 1].start if index + 1 < len(kept) else len(stream.text)
            yield _torch_message(span.match, stream.text[span.end : min(limit, span.end + _TAIL_LENGTH)], place)
        else:
            yield _other_message(span.form, span.match, place)


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
        details=tuple((name[2:], value) for name, value in groups.items() if name.startswith("d_")),
        frames=found.frames,
    )
