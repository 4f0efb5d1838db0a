"""The words without which no message about memory stands in a log, found at the speed of a search for a substring.

A substring is looked for at several gigabytes a second, a pattern that begins with a literal at one, a pattern that ignores case
or begins with a choice at a fiftieth of it; so each is asked, over text in lower case, only where its literal stands.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

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


def find_needles(folded: str) -> list[int]:
    """Return where the needles of the known messages stand in a text in lower case, in no order."""
    found = (pattern.finditer(folded) for literal, pattern in _patterns() if literal in folded)
    return [match.start() for match in chain.from_iterable(found)]


def has_needle(folded: str) -> bool:
    """Tell whether a needle of a known message stands in a text in lower case."""
    return any(literal in folded and pattern.search(folded) is not None for literal, pattern in _patterns())


def find_speech(folded: str) -> int | None:
    """Return where a text in lower case, or the bytes of one as Latin-1, first speaks of exhausted memory, in whatever form."""
    first = (
        next((match.start() for match in pattern.finditer(folded) if _begins_word(folded, match)), None)
        for literal, pattern in _speech()
        if literal in folded
    )
    return min((position for position in first if position is not None), default=None)


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
