"""Columns of a terminal: a Chinese character takes two, and a line of them may break between any two."""

from __future__ import annotations

import re

from compatcheck.core.pattern import lazy_compile

_WIDE = "\u2e80"
"""No character before this one that is written here takes two columns."""
_ITEM = lazy_compile(r".+?(?:[,;] |[，；、]|$)", re.DOTALL)
_OPENING = "（《「『【“‘"
_CLOSING = "，。、；：！？）》」』】”’…"


def measure(text: str) -> int:
    """Return the columns that a text takes."""
    if is_narrow(text):
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 (only where a text is wide)

    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in {"W", "F"} else 1 for sign in text)


def is_narrow(text: str) -> bool:
    """Tell whether each character of a text takes one column."""
    return text.isascii() or max(text) < _WIDE


def pad(text: str, columns: int) -> str:
    """Fill a text with blanks up to a number of columns."""
    return text + " " * (columns - measure(text))


def fill(text: str, width: int, rest: int | None = None) -> list[str]:
    """Break a text at blanks, and beside wide characters, into lines of at most ``width`` columns, of ``rest`` behind the first.

    A longer word is alone.
    """
    lines: list[str] = []
    narrow = is_narrow(text)
    for word in text.split():
        for index, part in enumerate((word,) if narrow else _split(word)):
            room = width if len(lines) <= 1 or rest is None else rest
            longer = f"{lines[-1]} {part}" if lines and not index else f"{lines[-1]}{part}" if lines else part
            if lines and measure(longer) <= room:
                lines[-1] = longer
            else:
                lines.append(part)
    return lines


def break_list(text: str, width: int) -> list[str]:
    """Break a text behind commas and semicolons alone, where it is wider: names stay whole, and commands that a person copies."""
    lines = [""]
    for part in _ITEM.findall(text):
        if lines[-1] and measure(f"{lines[-1]}{part.rstrip()}") > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _split(word: str) -> list[str]:
    """Split a word where a line may break: beside wide characters, no closing sign first and no opening one last."""
    parts: list[str] = []
    before = ""
    for sign in word:
        narrow = sign < _WIDE and before < _WIDE
        if parts and (sign in _CLOSING or before in _OPENING or narrow):
            parts[-1] += sign
        else:
            parts.append(sign)
        before = sign
    return parts
