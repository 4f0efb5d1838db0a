"""Brace expansion: ``a{1,2}b``, ``{1..8}``, ``{01..10..3}``, ``{a..e}``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.shell.limits import MAX_WORDS, LimitError

if TYPE_CHECKING:
    from compatcheck.shell.lexical import Lexer

_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


def expand_braces(word: str, lexer: type[Lexer]) -> list[str]:
    """Return the words that a word with braces stands for, in order; quotes are kept.

    Raises:
        LimitError: more than ``MAX_WORDS``.
    """
    if "{" not in word:
        return [word]
    return _expand(word, lexer, 0)


def _expand(word: str, kind: type[Lexer], depth: int) -> list[str]:
    lexer = kind(word)
    i = 0
    while i < len(word):
        if word[i] == "{":
            found = _alternatives(word, lexer, i)
            if found is not None and depth < _MAX_DEPTH:
                parts, end = found
                inner = [
                    one for part in parts for one in ([part] if len(parts) == 1 else _expand(part, kind, depth + 1))
                ]
                rests = _expand(word[end:], kind, depth + 1)
                if len(inner) * len(rests) > MAX_WORDS:
                    raise LimitError(f"braces stand for more than {MAX_WORDS} words")
                return [word[:i] + one + rest for one in inner for rest in rests]
        i = _pass(word, lexer, i)
    return [word]


_MAX_DEPTH = 20


def _pass(word: str, lexer: Lexer, i: int) -> int:
    """Return the offset after the character, quoted text or expansion at an offset."""
    match word[i]:
        case "\\":
            return i + 2
        case "'":
            return lexer.single(i)
        case '"':
            return lexer.double(i)
        case "$" | "`":
            return lexer.expansion(i)
        case _:
            return i + 1


def _alternatives(word: str, lexer: Lexer, start: int) -> tuple[list[str], int] | None:
    """Return what stands between the braces at an offset, and where they end; None if they are plain text."""
    depth, i, cut = 0, start, start + 1
    parts: list[str] = []
    while i < len(word):
        char = word[i]
        if char == "{":
            depth += 1
        elif char == "," and depth == 1:
            parts.append(word[cut:i])
            cut = i + 1
        elif char == "}":
            depth -= 1
            if not depth:
                parts.append(word[cut:i])
                return (parts, i + 1) if len(parts) > 1 else _sequence(word[start + 1 : i], i + 1)
        i = _pass(word, lexer, i)
    return None


def _sequence(text: str, end: int) -> tuple[list[str], int] | None:
    match = _RANGE.fullmatch(text)
    if match is None or match[1].isalpha() != match[2].isalpha():
        return None
    letters = match[1].isalpha()
    first, last = (ord(match[1]), ord(match[2])) if letters else (int(match[1]), int(match[2]))
    step = abs(int(match[3] or 1)) or 1
    if abs(last - first) // step >= MAX_WORDS:
        raise LimitError(f"braces stand for more than {MAX_WORDS} words")
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if letters:
        words = [chr(number) for number in numbers]
    else:
        padded = any(re.match(r"-?0\d", one) for one in (match[1], match[2]))
        width = max(len(match[1]), len(match[2])) if padded else 0
        words = [f"{number:0{width}d}" if width else str(number) for number in numbers]
    return (words, end) if len(words) > 1 else ([*words], end)
