"""The grammar of out-of-memory messages: torch's caching allocator in every era, and the forms of other programs.

Written from the format strings of c10/cuda/CUDACachingAllocator.cpp: 1.0–1.3 ``(GPU 0; … cached)``, 1.4–2.0
``(GPU 0; … reserved in total by PyTorch)``, from 2.1 ``GPU 0 has a total capac(i)ty of … of which … is free.`` with clauses
about processes, a limit and private pools. Forks print the same with another device name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.out_of_memory import Frame, Message, Printed
from compatcheck.memory.oom.forms import FORMS, Form
from compatcheck.memory.oom.sizes import SIZE, parse_size, tell_rounding
from compatcheck.memory.oom.text import Stream, find_frames, split_streams, windows

if TYPE_CHECKING:
    from collections.abc import Iterator

_TORCH = re.compile(
    rf"(?:(?:(?P<allocator>\b[A-Z][A-Za-z]{{1,8}}) )?[Oo]ut of memory\.? )?\bTried to allocate (?P<asked>(?i:{SIZE}))",
)
_TAIL_LENGTH = 2500
"""A message with the processes of a whole node stays below this."""
_OLD = re.compile(
    rf"\s?\((?:GPU|NPU|MLU|DCU|XPU|GCU|Device)? ?(?P<device>\S*?); (?P<total>{SIZE}) total capacity; (?P<allocated>{SIZE}) already allocated; "
    rf"(?:{SIZE} current active; )?(?P<free>{SIZE}) free; (?:(?P<allowed>{SIZE}) allowed; )?(?P<reserved>{SIZE}) (?P<word>cached|reserved)",
    re.IGNORECASE,
)
_NEW = re.compile(
    rf"\.? ?(?:GPU|NPU|XPU|Device)\s?(?P<device>\S*?)\s?has a total capac(?P<i>i?)ty of (?P<total>{SIZE}) of which (?P<free>{SIZE}) is free",
    re.IGNORECASE,
)
_PROCESS = re.compile(rf"Process (\d+) has ({SIZE}) memory in use", re.IGNORECASE)
_CLAUSES = {
    "process": re.compile(rf"this process has ({SIZE}) memory in use", re.IGNORECASE),
    "allowed": re.compile(rf"({SIZE}) allowed; Of the", re.IGNORECASE),
    "allocated": re.compile(rf"Of the allocated memory ({SIZE}) is allocated by PyTorch", re.IGNORECASE),
    "private_pools": re.compile(rf"with ({SIZE}) allocated in private pools", re.IGNORECASE),
    "unallocated": re.compile(rf"({SIZE}) is reserved by PyTorch but unallocated", re.IGNORECASE),
}
_COMPILED: dict[str, re.Pattern[str]] = {}


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
        merged[key] = kept._replace(count=first.count + message.count, line=first.line)
    return tuple(merged.values())


def _read_stream(stream: Stream) -> Iterator[Message]:
    spans: list[tuple[int, int, re.Match[str], Form | None]] = [
        (match.start(), match.end(), match, None) for match in _TORCH.finditer(stream.text)
    ]
    lowered = stream.text.lower()
    for form in FORMS:
        if form.needle in lowered:
            spans.extend((match.start(), match.end(), match, form) for match in _pattern(form).finditer(stream.text))
    spans.sort(key=lambda span: (span[0], -span[1]))
    kept: list[tuple[int, int, re.Match[str], Form | None]] = []
    for span in spans:
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    before = windows(stream.text, [span[0] for span in kept], [span[1] for span in kept])
    for index, (start, end, match, form) in enumerate(kept):
        frames = find_frames(before[index])
        if form is None:
            limit = kept[index + 1][0] if index + 1 < len(kept) else len(stream.text)
            tail = stream.text[end : min(limit, end + _TAIL_LENGTH)]
            yield _torch_message(match, tail, stream, stream.line_at(start), frames)
        else:
            yield _other_message(form, match, stream, stream.line_at(start), frames)


def _pattern(form: Form) -> re.Pattern[str]:
    if form.name not in _COMPILED:
        _COMPILED[form.name] = re.compile(form.pattern, re.IGNORECASE)
    return _COMPILED[form.name]


def _torch_message(match: re.Match[str], tail: str, stream: Stream, line: int, frames: tuple[Frame, ...]) -> Message:
    asked = parse_size(match.group("asked"))
    fields: dict[str, Printed | None] = {}
    old, new = _OLD.match(tail), _NEW.match(tail)
    head = old or new
    device = head.group("device") if head is not None else ""
    others: tuple[tuple[int, Printed], ...] = ()
    if head is not None:
        names = ("total", "free", "allocated", "allowed", "reserved") if old else ("total", "free")
        fields = {name: parse_size(head.group(name) or "") for name in names}
    if new is not None:
        cut = tail.find("Traceback (most")
        clauses = tail[: cut if cut >= 0 else None]
        for name, clause in _CLAUSES.items():
            value = clause.search(clauses)
            fields[name] = None if value is None else parse_size(value.group(1))
        sizes = ((int(number), parse_size(text)) for number, text in _PROCESS.findall(clauses))
        others = tuple((number, size) for number, size in sizes if size is not None)
    return Message(
        form="torch",
        allocator=match.group("allocator") or "CUDA or another device",
        memory="device",
        releases=_releases(old, new, device, tail),
        line=line,
        stream=stream.name,
        asked=asked,
        rounding="unknown" if asked is None else tell_rounding(asked),
        device=int(device) if device.isdigit() else None,
        others=others,
        frames=frames,
        **fields,
    )


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


def _other_message(form: Form, match: re.Match[str], stream: Stream, line: int, frames: tuple[Frame, ...]) -> Message:
    groups = {name: value for name, value in match.groupdict().items() if value}
    asked = parse_size(groups.get("asked", ""))
    device = groups.pop("device", "")
    sizes = {name: parse_size(groups[name]) for name in ("total", "free", "allocated") if name in groups}
    return Message(
        form=form.name,
        allocator=form.allocator,
        memory=form.memory,
        releases=form.releases,
        line=line,
        stream=stream.name,
        asked=asked,
        rounding=form.rounding if asked is not None else "unknown",
        device=int(device) if device.isdigit() else None,
        details=tuple((name[2:], value) for name, value in groups.items() if name.startswith("d_")),
        frames=frames,
        **sizes,
    )
