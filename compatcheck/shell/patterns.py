"""Patterns of bash (``*``, ``?``, ``[…]``, ``@(a|b)``) as regular expressions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_STARS = 8
"""More may take longer than anyone waits."""
MAX_TEXT = 20_000
MAX_WAYS = 10**8
"""In which stars may share a text among them."""

_GROUPS = {"?": "?", "*": "*", "+": "+", "@": ""}
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
}


class PatternError(ValueError):
    """A pattern is too costly to match, or of a kind that is not read."""


def translate(parts: Iterable[tuple[str, bool]]) -> re.Pattern[str]:
    """Return the regular expression of a pattern, given as texts and whether each is quoted (stands for itself).

    Raises:
        PatternError: it negates a group, or has more than ``MAX_STARS`` stars.
    """
    chars = [(char, quoted) for text, quoted in parts for char in text]
    source, end = _sequence(chars, 0, inside=False)
    if source.count(".*") > MAX_STARS:
        raise PatternError("too many stars")
    try:
        return re.compile(source, re.DOTALL) if end == len(chars) else re.compile("(?!)")
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from None


def _sequence(chars: list[tuple[str, bool]], i: int, *, inside: bool) -> tuple[str, int]:
    result: list[str] = []
    while i < len(chars):
        char, quoted = chars[i]
        if quoted:
            result.append(re.escape(char))
        elif char in "?*+@!" and i + 1 < len(chars) and chars[i + 1] == ("(", False):
            if char == "!":
                raise PatternError("a negated group")
            inner, i = _sequence(chars, i + 2, inside=True)
            if char in "*+" and not _is_clear(inner):
                raise PatternError("a repeated group that matches one text in several ways")
            result.append(f"(?:{inner}){_GROUPS[char]}")
        elif inside and char == ")":
            return "".join(result), i
        elif inside and char == "|":
            result.append("|")
        elif char == "*":
            if result[-1:] != [".*"]:
                result.append(".*")
        elif char == "?":
            result.append(".")
        elif char == "[":
            found = _bracket(chars, i)
            result.append(found[0] if found else r"\[")
            i = found[1] if found else i
        elif char == "\\" and i + 1 < len(chars):
            i += 1
            result.append(re.escape(chars[i][0]))
        else:
            result.append(re.escape(char))
        i += 1
    if inside:
        raise PatternError("a group is not closed")
    return "".join(result), i


_REPEATED = re.compile(r"\[(?:\\.|[^]\\])+\]|(?:\\.|[^\\\[\]().*?|+])+|\.")
"""What may be repeated: one sign of a class, a text, or any sign."""


def _is_clear(inner: str) -> bool:
    """Tell whether what is repeated matches a text in one way at most, so that trying does not double with its length."""
    branches = re.split(r"(?<!\\)\|", inner)
    alone = len(branches) == 1 and _REPEATED.fullmatch(inner) is not None
    starts = {branch[:2] if branch[:1] == "\\" else branch[:1] for branch in branches}
    plain = all(_REPEATED.fullmatch(branch) and branch[0] not in "[." for branch in branches if branch)
    return alone or (plain and all(branches) and len(starts) == len(branches))


def _bracket(chars: list[tuple[str, bool]], i: int) -> tuple[str, int] | None:
    """Translate ``[…]``; return the offset of its end, or None where the bracket stands for itself."""
    i += 1
    negated = i < len(chars) and chars[i] in {("!", False), ("^", False)}
    i += negated
    result: list[str] = []
    first = True
    while i < len(chars):
        char, quoted = chars[i]
        rest = "".join(one for one, _ in chars[i : i + 12])
        named = re.match(r"\[:(\w+):\]", rest)
        if char == "]" and not quoted and not first:
            return f"[{'^' if negated else ''}{''.join(result)}]", i
        if named and not quoted:
            if named[1] not in _CLASSES:
                raise PatternError(f"class {named[1]}")
            result.append(_CLASSES[named[1]])
            i += named.end() - 1
        elif char == "-" and not quoted and not first and i + 1 < len(chars) and chars[i + 1][0] != "]":
            result.append("-")
        elif char == "/":
            result.append("/")
        else:
            result.append(re.escape(char))
        first = False
        i += 1
    return None


def remove_prefix(text: str, pattern: re.Pattern[str], *, longest: bool) -> str:
    """Drop the shortest or longest beginning that matches: ``${X#p}``, ``${X##p}``."""
    _check(text, pattern)
    lengths = range(len(text), -1, -1) if longest else range(len(text) + 1)
    return next((text[n:] for n in lengths if pattern.fullmatch(text, 0, n)), text)


def remove_suffix(text: str, pattern: re.Pattern[str], *, longest: bool) -> str:
    """Drop the shortest or longest end that matches: ``${X%p}``, ``${X%%p}``."""
    _check(text, pattern)
    starts = range(len(text) + 1) if longest else range(len(text), -1, -1)
    return next((text[:n] for n in starts if pattern.fullmatch(text, n)), text)


def substitute(text: str, pattern: re.Pattern[str], replacement: str, kind: str) -> str:
    """Replace what matches: ``/`` the first, ``//`` every, ``/#`` at the beginning, ``/%`` at the end."""
    _check(text, pattern)
    if not pattern.pattern and kind in {"/", "//"}:
        return text
    if kind == "/#":
        ends = (n for n in range(len(text), -1, -1) if pattern.fullmatch(text, 0, n))
        end = next(ends, None)
        return text if end is None else replacement + text[end:]
    if kind == "/%":
        start = next((n for n in range(len(text) + 1) if pattern.fullmatch(text, n)), None)
        return text if start is None else text[:start] + replacement
    if not text:
        return replacement if pattern.fullmatch("") else text
    result, i = [], 0
    while i < len(text):
        match = pattern.match(text, i)
        if match is None or match.end() == i:
            result.append(text[i])
            i += 1
            continue
        result.append(replacement)
        i = match.end()
        if kind == "/":
            break
    return "".join(result) + text[i:]


def matches(text: str, pattern: re.Pattern[str]) -> bool:
    """Tell whether a pattern matches a text as a whole.

    Raises:
        PatternError: it may take longer than anyone waits.
    """
    _check(text, pattern)
    return pattern.fullmatch(text) is not None


def _check(text: str, pattern: re.Pattern[str]) -> None:
    stars = pattern.pattern.count(".*") + pattern.pattern.count(")*") + pattern.pattern.count(")+")
    if len(text) > MAX_TEXT or len(text) ** stars > MAX_WAYS:
        raise PatternError("a long text")
