"""The words without which no message about memory stands in a log, found at the speed of a search for a substring.

A substring is looked for at several gigabytes a second, a pattern that begins with a literal at one, a pattern that ignores case
or begins with a choice at a fiftieth of it; so each is asked, over text in lower case, only where its literal stands. Of the
lines of a log few differ but in their numbers, so that most literals are looked for in one of each kind (`Sieve`).
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from compatcheck.oom.forms import FORMS, TORCH_NEEDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

_BREAK = r"[^\w\r\n]*[\r\n]"
"""The end of a line, behind blanks and the border of a box: what follows stands on another line, behind its prefixes."""
_SHORT = 3
"""Letters of a first word that also ends longer ones ("timeout")."""
_SPEECH = (
    ("oom", r"oom"), ("memory", r"out[ _-]?of[ _-]?(?:\w+[ _-])?memory"), ("memory ", r"memory (?:exhausted|allocation fail)"),
    ("alloc", r"cannot (?:re)?alloc"), ("alloc", r"can't (?:re)?alloc"), ("alloc", r"failed to (?:re)?alloc"),
    ("alloc", r"unable to (?:re)?alloc"), ("not enough ", r"not enough (?:\w+ )?memory"),
    ("insufficient ", r"insufficient (?:\w+ )?memory"), ("alloc", r"alloc\w* (?:fail|error)"),
    ("显存", r"显存(?:不足|不够|溢出|爆|用完)"), ("内存", r"内存(?:不足|不够|溢出|爆|用完)"), ("爆", r"爆(?:显存|内存)"),
    ("kill", r"(?:被|自动) ?kill"),
)  # fmt: skip
"""What speaks of exhausted memory in whatever form, each with a part of it; the first only where a word begins."""


Rows: TypeAlias = "tuple[tuple[str, re.Pattern[str]], ...]"
"""Literals, each with the pattern that begins with it."""


def find_needles(folded: str, rows: Rows | None = None) -> list[int]:
    """Return where the needles of the known messages, or these, stand in a text in lower case, in no order."""
    found = (
        pattern.finditer(folded) for literal, pattern in (_patterns() if rows is None else rows) if literal in folded
    )
    return [match.start() for match in chain.from_iterable(found)]


def has_needle(folded: str, rows: Rows) -> bool:
    """Tell whether one of some needles stands in a text in lower case."""
    return any(literal in folded and pattern.search(folded) is not None for literal, pattern in rows)


def find_speech(folded: str, rows: Rows | None = None) -> int | None:
    """Return where a text in lower case, or the bytes of one as Latin-1, first speaks of exhausted memory, in whatever form."""
    first = (
        next((match.start() for match in pattern.finditer(folded) if _begins_word(folded, match)), None)
        for literal, pattern in (_speech() if rows is None else rows)
        if literal in folded
    )
    return min((position for position in first if position is not None), default=None)


_DIGITS = b"0123456789"


def leave_out_digits(data: bytes) -> set[bytes]:
    """Return the lines of a text without their digits: what stands in the text stands, without its own, in one of them."""
    return set(data.translate(None, _DIGITS).splitlines())


class Sieve:
    """Tells which literals may stand in a part of a log, by the kinds of lines that parts before it have not had."""

    _MOST = 8 << 20
    """Bytes of lines without any literal that are remembered."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._harmless: set[bytes] = set()
        self._size = 0
        self._needles = [(_write_bare(literal), (literal, pattern)) for literal, pattern in _patterns()]
        self._speech = [(_write_bare(literal), (literal, pattern)) for literal, pattern in _speech()]

    def select(self, lowered: bytes) -> tuple[Rows, Rows]:
        """Return the rows of needles and of speech that may stand in a part in lower case."""
        lines = leave_out_digits(lowered) - self._harmless
        text = b"\n".join(lines)
        needles = [one for one in self._needles if one[0] in text]
        speech = [one for one in self._speech if one[0] in text]
        literals = {bare for bare, _ in (*needles, *speech) if bare}
        new = {line for line in lines if not any(bare in line for bare in literals)} if literals else lines
        self._size += sum(map(len, new))
        self._harmless |= new
        if self._size > self._MOST:
            self._harmless, self._size = set(), 0
        return tuple(row for _, row in needles), tuple(row for _, row in speech)


def _write_bare(literal: str) -> bytes:
    """Write a literal as it stands in a line without digits; as nothing, which stands in each, if it has digits or a break."""
    data = literal.encode("latin-1") if max(literal) < "\u0100" else literal.encode()
    return b"" if b"\n" in data or set(data) & {*_DIGITS} else data


def _begins_word(folded: str, match: re.Match[str]) -> bool:
    before = folded[match.start() - 1 : match.start()]
    after = folded[match.end() : match.end() + 1]
    word = (
        (before.isascii() and before.isalnum())
        or before == "_"
        or (after.isascii() and after.isalpha() and after != "s")
    )
    return match[0] != "oom" or not word


@cache
def _speech() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the forms of speech as they stand in a text, and where their bytes are others in Latin-1 also as these."""
    rows = dict.fromkeys(_SPEECH)
    rows.update(dict.fromkeys(tuple(text.encode().decode("latin-1") for text in row) for row in _SPEECH))  # type: ignore[misc]
    return tuple((literal, re.compile(pattern)) for literal, pattern in rows)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return one pattern for all needles that begin with the same literal, with it."""
    needles = dict.fromkeys([TORCH_NEEDLE, *(needle for form in FORMS for needle in form.needle.split("|"))])
    endings: dict[str, dict[str, None]] = {}
    for literal, ending in chain.from_iterable(map(_spell, needles)):
        endings.setdefault(literal, {})[ending] = None
    return tuple(
        (literal, re.compile(f"{re.escape(literal)}(?:{'|'.join(after)})", re.ASCII))
        for literal, after in endings.items()
    )


def _spell(needle: str) -> Iterator[tuple[str, str]]:
    """Yield how a needle is written, which may be broken over lines between its words: a literal, and a pattern behind it."""
    end = r"(?!\.?\w)" if needle[-1].isdigit() else ""  # 137, and no part of a number
    if needle.startswith(" "):
        yield needle, end
        yield "\n" + needle[1:], end
        return
    first, *words = needle.split(" ")
    pattern = ""
    for word in reversed(words[1:]):
        pattern = rf"(?:\s+{re.escape(word)}{pattern}|{_BREAK})"
    if not words:
        yield first, end
    elif len(first) > _SHORT:
        yield first, rf"(?:\s+{re.escape(words[0])}{pattern}|{_BREAK})"
    else:
        yield first, rf" {re.escape(words[0])}{pattern}"
        yield first, rf"(?<=[ ']{re.escape(first)}){_BREAK}"
