"""What a log accounts for before it ends: what parts of an engine took at its start, and what a process held step by step."""

from __future__ import annotations

import heapq
import re
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_text
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.out_of_memory import Account, Held, Series
from compatcheck.core.pasted_text import fold_case
from compatcheck.core.units import GIB, MIB
from compatcheck.oom.text import strip_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = r"\d{1,9}(?:\.\d{1,20})?(?!\d)"
_UNITS = {"GiB": GIB, "MiB": MIB}
_STATES = ("allocated", "reserved", "used", "free")
"""What is held at a moment, the surest measure of growth first."""
_PARTS = {
    "weights": "weights", "consumed": "weights and other libraries", "activations": "activations of the profiled pass",
    "outside_torch": "outside torch", "kv_cache": "KV cache", "states": "states of linear attention",
    "cuda_graphs": "CUDA graphs",
}  # fmt: skip
_BEFORE = "<before>"
_NO_MOMENT = re.compile(
    r"^(?:\[[^\]]*\]\s*|(?:INFO|DEBUG|WARNING)\b[\s:]*|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)?[\s:]*|\w+(?:\.\w+)+:)+"
)
"""What loggers put before it."""
_COUNTED = re.compile(
    r"(?<!\d)(?<!\blayer )(?<!\bblock )(?<!\bgroup )(?<!\bstage )(?<!\brank )(?<!\bgpu )\d+", re.IGNORECASE
)
"""A number that counts moments of one name, and tells no part of a model or of a job."""
_AROUND = 512
"""Characters of a line on either side that are looked at."""
_MOST_LINES = 100_000
"""Lines that are read; a log within what is kept of it has fewer."""
_GROWS_BYTES = GIB // 2
"""What the last of a series that grows is at least above its first."""
_ONE_JUMP = 0.75
"""Part of the rise that one step of it may be: two of the three moments that the shortest series has make it."""
_MOST_LABELS = 8
"""Lines before one that does not name its moment that may: what other processes print stands between."""


class Line(NamedTuple):
    """One form of such a line."""

    writer: str
    needle: str
    """Lower-case text that stands in every one."""
    pattern: re.Pattern[str]
    unit: str = "GiB"
    label: str = ""
    """The moment, where the line itself does not name it; ``<before>``: a line before it does."""
    printer: str = ""
    """Function that prints both lines, where their prefixes name it."""


def read_account(log: str) -> Account:
    """Read what a log accounts for.

    Sizes are in bytes, of the numbers as they are printed. Of ranks that print the same part the highest counts, of starts of one
    rank the one that took most.
    """
    starts: dict[tuple[str, str], list[_Start]] = {}
    states: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    total = 0
    for form, number, process, text, before in _find_lines(log):
        match = form.pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        stream = " ".join(filter(None, (process, groups.pop("rank", None))))
        label = before if form.label == _BEFORE else groups.pop("label", None) or form.label
        found = {name: round(float(value) * _UNITS[form.unit]) for name, value in groups.items() if value is not None}
        total = max(total, found.get("total", 0))
        sums = {name: found.get(name, 0) + found.get(f"{name}_besides", 0) for name in _PARTS}
        sizes = {words: sums[name] for name, words in _PARTS.items() if sums[name]}
        if sizes:
            of_stream = starts.setdefault((form.writer, stream), [])
            if not of_stream or of_stream[-1].opened is form:
                of_stream.append(_Start(form, {}))
            for words, size in sizes.items():
                _keep_higher(of_stream[-1].held, Held(words, size, form.writer, number))
        kind = next((name for name in _STATES if name in found), None)
        if kind is not None:
            moment = _NO_MOMENT.sub("", _COUNTED.sub("N", _NO_MOMENT.sub("", label)).strip(" :,|"))
            states.setdefault((form.writer, moment, kind, stream), []).append((number, found[kind]))
    held: dict[str, Held] = {}
    for of_stream in starts.values():
        for one in max(of_stream, key=_Start.measure).held.values():
            _keep_higher(held, one)
    return Account(tuple(held.values()), tuple(_choose(states)), total or None)


class _Start(NamedTuple):
    """What a rank said of one start of an engine: it begins again where the line that it began with is said again."""

    opened: Line
    held: dict[str, Held]

    def measure(self) -> int:
        """Return what it took."""
        return sum(one.size_bytes for one in self.held.values())


def _keep_higher(held: dict[str, Held], one: Held) -> None:
    if one.part not in held or held[one.part].size_bytes < one.size_bytes:
        held[one.part] = one


def _choose(states: dict[tuple[str, str, str, str], list[tuple[int, int]]]) -> Iterator[Series]:
    """Yield for each moment the rank that grew most."""
    chosen: dict[tuple[str, str, str], Series] = {}
    for (writer, moment, kind, stream), found in states.items():
        sizes = [size for _, size in found]
        grows = kind != "free" and _grows(sizes)
        series = Series(moment, kind, writer, stream, len(found), *found[0], *found[-1], max(sizes), grows)
        key = writer, moment, kind
        if key not in chosen or _growth(series) > _growth(chosen[key]):
            chosen[key] = series
    yield from chosen.values()


def _growth(series: Series) -> tuple[bool, int, int]:
    """Return what puts a rank before another: that it grows, then how much it holds more in the end, then how much it holds."""
    sign = -1 if series.kind == "free" else 1
    return series.grows, sign * (series.last_bytes - series.first_bytes), sign * series.last_bytes


def _grows(sizes: list[int]) -> bool:
    """Tell whether sizes rise all along: a first step, a restart and one long batch rise once, ranks and epochs to and fro."""
    third = len(sizes) // 3
    rise = sizes[-1] - sizes[0]
    if not third or rise < _GROWS_BYTES or sizes[-1] + rise / 4 < max(sizes):
        return False
    first, middle, last = sizes[:third], sizes[third:-third], sizes[-third:]
    jump = max(after - before for before, after in pairwise(sizes))
    return jump <= rise * _ONE_JUMP and max(first) < sorted(middle)[len(middle) // 2] < min(last)


def _find_lines(log: str) -> Iterator[tuple[Line, int, str, str, str]]:
    """Yield the lines that may account for something: their form, number, stream, text and the line that names it."""
    folded = fold_case(log)
    hits = heapq.merge(*(zip(_find_all(folded, form.needle), repeat(rank)) for rank, form in enumerate(_LINES)))
    number, counted = 1, 0
    last: dict[int, int] = {}
    for position, rank in islice(hits, _MOST_LINES):
        begin = log.rfind("\n", 0, position) + 1
        if last.get(rank) == begin:
            continue
        last[rank] = begin
        end = log.find("\n", position)
        end = len(log) if end < 0 else end
        number, counted = number + log.count("\n", counted, begin), begin
        stream, text = strip_line(log[max(begin, position - _AROUND) : min(end, position + _AROUND)])
        form = _LINES[rank]
        word = form.printer if form.printer in log[max(begin, position - _AROUND) : position] else ""
        before = _find_label(log, begin, stream, word) if form.label == _BEFORE else ""
        yield form, number, stream, text, "" if form.needle in fold_case(before) else before


def _find_label(log: str, begin: int, stream: str, word: str) -> str:
    """Return the last line of a process with a word before a position, empty where others alone are near."""
    for _ in range(_MOST_LABELS):
        end, begin = begin - 1, log.rfind("\n", 0, max(0, begin - 1)) + 1
        if end < 0:
            break
        raw = log[begin : min(end, begin + _AROUND)]
        name, text = strip_line(raw)
        if text and name == stream and word in raw:
            return text
    return ""


def _find_all(folded: str, needle: str) -> Iterator[int]:
    position = folded.find(needle)
    while position >= 0:
        yield position
        position = folded.find(needle, position + len(needle))


def _read_lines() -> Iterator[Line]:
    for record in read_text(__file__, "account").split("\n\n")[1:]:
        fields = dict(line.split(": ", 1) for line in record.splitlines() if not line.startswith("#"))
        pattern = re.compile(fields["pattern"].replace("<N>", _NUMBER), re.IGNORECASE)
        yield Line(**{**fields, "pattern": pattern})  # type: ignore[arg-type]  # words but for the pattern


_LINES = tuple(_read_lines())
