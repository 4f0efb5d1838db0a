"""Brace expansion: ``a{1,2}b``, ``{1..8}``, ``{01..10..3}``, ``{a..e}``."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from compatcheck.shell.limits import MAX_CHARACTERS, MAX_WORDS, LimitError

if TYPE_CHECKING:
    from compatcheck.shell.lexical import Lexer

_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


_MAX_DEPTH = 20
"""Braces inside one another."""


def expand_braces(word: str, lexer: type[Lexer]) -> list[str]:
    """Return the words that a word with braces stands for, in order; quotes are kept.

    Raises:
        LimitError: more than ``MAX_WORDS``, or longer than ``MAX_CHARACTERS`` in all.
    """
    if "{" not in word:
        return [word]
    return _expand(word, _find_pairs(word, lexer(word)), (0, len(word)), 0)


def _find_pairs(word: str, lexer: Lexer) -> dict[int, tuple[list[int], int]]:
    """Find the braces that stand for words: where each opens, its commas, and where it closes."""
    pairs: dict[int, tuple[list[int], int]] = {}
    opened: list[int] = []
    commas: list[int] = []
    before: list[int] = []
    """How many commas stand before each that is open."""
    i = 0
    while i < len(word):
        match word[i]:
            case "\\":
                i += 1
            case "'":
                i = lexer.single(i) - 1
            case '"':
                i = lexer.double(i) - 1
            case "$" | "`":
                i = lexer.expansion(i) - 1
            case "{":
                opened.append(i)
                before.append(len(commas))
            case "," if opened:
                commas.append(i)
            case "}" if opened:
                start, known = opened.pop(), before.pop()
                own = commas[known:]
                del commas[known:]
                if own or _RANGE.fullmatch(word, start + 1, i):
                    pairs[start] = own, i
        i += 1
    return pairs


def _expand(word: str, pairs: dict[int, tuple[list[int], int]], span: tuple[int, int], depth: int) -> list[str]:
    """Expand a part of a word."""
    i, end = span
    done = i
    result = [""]
    while i < end and depth <= _MAX_DEPTH:
        if i in pairs:
            commas, close = pairs[i]
            parts: list[str] | None
            if commas:
                borders = [i, *commas, close]
                spans = [(start + 1, stop) for start, stop in pairwise(borders)]
                parts = [one for inner in spans for one in _expand(word, pairs, inner, depth + 1)]
            else:
                parts = _sequence(word[i + 1 : close])
            if parts is not None:
                plain = word[done:i]
                size = sum(map(len, result)) * len(parts) + (sum(map(len, parts)) + len(plain)) * len(result)
                if len(result) * len(parts) > MAX_WORDS or size > MAX_CHARACTERS:
                    raise LimitError(f"braces stand for more than {MAX_WORDS} words")
                result = [before + plain + part for before in result for part in parts]
                i = close
                done = close + 1
        i += 1
    return [before + word[done:end] for before in result]


def _sequence(text: str) -> list[str] | None:
    """Count from one number or letter to another: ``1..8``; None for any other text."""
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
    return words
