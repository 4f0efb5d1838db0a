"""The words and redirections of one simple command, as written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.shell.lexical import OPERATOR, Heredoc, Lexer

if TYPE_CHECKING:
    from compatcheck.shell.grammar import Unit

_DESCRIPTOR = re.compile(r"\d+(?=[<>])|\{[A-Za-z_]\w*\}(?=[<>])")


_NAMED = 10
"""Stands for the descriptor bash chooses in ``{name}>file``: none of the standard ones."""


class Raw(NamedTuple):
    """A word before expansion."""

    text: str
    line: int


class Redirection(NamedTuple):
    """``2>&1``, ``> log``, ``<<EOF``."""

    descriptor: int | None
    """None is the operator's own: 0 for input, 1 for output."""
    operator: str
    target: Raw
    document: Raw | None = None
    """Text of a here-document."""
    literal: bool = False
    """Whether nothing in that is expanded."""


class Simple(NamedTuple):
    """A simple command before expansion."""

    words: list[Raw]
    redirections: list[Redirection]


def read_simple(unit: Unit, start: int, end: int) -> Simple:
    """Read the words and redirections between two offsets of a text."""
    text = unit.text[:end]
    lexer = Lexer(text, unit.depth)
    result = Simple([], [])
    i = start
    while True:
        i = lexer.skip_blanks(i)
        if i >= end or text[i] == "#":
            return result
        found = _read_redirection(unit, lexer, i)
        if found is None:
            stop = max(lexer.word(i), i + 1)
            result.words.append(Raw(text[i:stop], unit.line(i)))
            i = stop
        else:
            redirection, i = found
            result.redirections.append(redirection)


def read_redirections(unit: Unit, start: int) -> list[Redirection]:
    """Read the redirections behind a compound command that ends at an offset."""
    lexer = Lexer(unit.text, unit.depth)
    result: list[Redirection] = []
    i = lexer.skip_blanks(start)
    while found := _read_redirection(unit, lexer, i):
        result.append(found[0])
        i = lexer.skip_blanks(found[1])
    return result


def _read_redirection(unit: Unit, lexer: Lexer, i: int) -> tuple[Redirection, int] | None:
    text = lexer.text
    descriptor = _DESCRIPTOR.match(text, i)
    operator = OPERATOR.match(text, descriptor.end() if descriptor else i)
    if operator is None or (operator.group() in {"<", ">"} and text[operator.end() : operator.end() + 1] == "("):
        return None
    place = lexer.skip_blanks(operator.end())
    end = lexer.word(place)
    number = descriptor.group() if descriptor else ""
    document = unit.heredocs.get(operator.start())
    redirection = Redirection(
        int(number) if number.isdigit() else _NAMED if number else None,
        operator.group(),
        Raw(text[place:end], unit.line(place)),
        _read_document(unit, document) if document else None,
        document is not None and document.quoted,
    )
    return redirection, max(end, operator.end())


def _read_document(unit: Unit, found: Heredoc) -> Raw:
    text = unit.text[found.start : found.end]
    return Raw(re.sub(r"(?m)^\t+", "", text) if found.tabs else text, unit.line(found.start))


def read_elements(text: str, line: int, depth: int) -> list[Raw]:
    """Read the words of an array's ``( … )``, given its inside and the line that starts on."""
    lexer = Lexer(text, depth)
    result: list[Raw] = []
    i = lexer.skip_space(0)
    while i < len(text):
        end = max(lexer.word(i), i + 1)
        result.append(Raw(text[i:end], line + text.count("\n", 0, i)))
        i = lexer.skip_space(end)
    return result
