"""What a log accounts for before it ends: what parts of an engine took at its start, what a process held at a moment of each step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.data_file import read_text
from compatcheck.core.out_of_memory import Account, Held, Series
from compatcheck.core.pasted_text import fold_case
from compatcheck.core.units import GIB, MIB
from compatcheck.oom.text import strip_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_UNITS = {"GiB": GIB, "MiB": MIB}
_STATES = ("allocated", "reserved", "used", "free")
"""What is held at a moment, the surest measure of growth first."""
_PARTS = {
    "weights": "weights", "consumed": "weights and other libraries", "activations": "activations of the profiled pass",
    "outside_torch": "outside torch", "kv_cache": "KV cache", "cuda_graphs": "CUDA graphs",
}  # fmt: skip
_BEFORE = "<before>"
_NO_MOMENT = re.compile(r"^(?:\[[^\]]*\]\s*|(?:INFO|DEBUG|WARNING)\b[\s:]*)+")
"""What loggers put before it."""
_LONGEST = 4096
"""Characters of a line that are looked at."""
_MOST_LINES = 100_000
"""Lines that are read; a log within what is kept of it has fewer."""
_GROWS_BYTES = GIB // 2
_GROWS_TIMES = 3
"""A series of at least so many moments whose last is at least so much above its first, and its highest, grows."""


class Line(NamedTuple):
    """One form of such a line."""

    writer: str
    needle: str
    """Lower-case text that stands in every one."""
    pattern: re.Pattern[str]
    unit: str = "GiB"
    label: str = ""
    """The moment, where the line itself does not name it; ``<before>``: the line before it does."""


def read_account(log: str) -> Account:
    """Read what a log accounts for.

    Sizes are in bytes, of the numbers as they are printed. Of ranks that print the same part the highest counts.
    """
    held: dict[tuple[str, str], Held] = {}
    states: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    total = 0
    for form, number, stream, text, before in _find_lines(log):
        match = form.pattern.search(text)
        if match is None:
            continue
        found = {
            name: round(float(value) * _UNITS[form.unit])
            for name, value in match.groupdict().items()
            if name != "label" and value is not None
        }
        found["kv_cache"] = found.get("kv_cache", 0) + found.pop("kv_cache_of_values", 0)
        total = max(total, found.get("total", 0))
        for name, words in _PARTS.items():
            key = form.writer, words
            if found.get(name) and (key not in held or held[key].size_bytes < found[name]):
                held[key] = Held(words, found[name], form.writer, number if key not in held else held[key].line)
        label = before if form.label == _BEFORE else match.groupdict().get("label") or form.label
        kind = next((name for name in _STATES if name in found), None)
        if kind is not None:
            moment = _NO_MOMENT.sub("", re.sub(r"\d+", "N", label).strip(" :,|"))
            states.setdefault((form.writer, moment, kind, stream), []).append((number, found[kind]))
    return Account(tuple(held.values()), tuple(_choose(states)), total or None)


def _choose(states: dict[tuple[str, str, str, str], list[tuple[int, int]]]) -> Iterator[Series]:
    """Yield for each moment the rank that grew most."""
    chosen: dict[tuple[str, str, str], Series] = {}
    for (writer, moment, kind, stream), found in states.items():
        sizes = [size for _, size in found]
        first, last = found[0], found[-1]
        above = last[1] - first[1]
        grows = (
            len(found) >= _GROWS_TIMES
            and above >= _GROWS_BYTES
            and last[1] + above / 4 >= max(sizes)
            and kind != "free"
        )
        series = Series(moment, kind, writer, stream, len(found), *first, *last, max(sizes), grows)
        key = writer, moment, kind
        if key not in chosen or above > chosen[key].last_bytes - chosen[key].first_bytes:
            chosen[key] = series
    yield from chosen.values()


def _find_lines(log: str) -> Iterator[tuple[Line, int, str, str, str]]:
    """Yield the lines that may account for something: their form, number, stream and text, and the text of the line before."""
    folded = fold_case(log)
    hits = sorted((position, rank) for rank, form in enumerate(_LINES) for position in _find_all(folded, form.needle))
    number, counted = 1, 0
    for position, rank in hits[:_MOST_LINES]:
        begin = log.rfind("\n", 0, position) + 1
        end = log.find("\n", position)
        end = len(log) if end < 0 else end
        number, counted = number + log.count("\n", counted, begin), begin
        stream, text = strip_line(log[max(begin, position - _LONGEST) : min(end, position + _LONGEST)])
        before = ""
        if _LINES[rank].label == _BEFORE and begin:
            before = strip_line(log[max(log.rfind("\n", 0, begin - 1) + 1, begin - _LONGEST) : begin - 1])[1]
        yield _LINES[rank], number, stream, text, before


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
