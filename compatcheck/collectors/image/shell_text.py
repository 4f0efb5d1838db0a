"""Shell text split into simple commands, as far as finding the program an image starts needs it.

Not a shell: both branches of a condition are seen in order, loops once, and what a command prints is unknown.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_CHARACTERS = 65536
"""Longest text that is looked at; the scripts that start containers are far shorter."""

_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "{", "!", "time", "("})
_REFERENCE = r"\$(?:\{(\w+)(?::?-([^{}$]*))?\}|(\w+))"
_COMMENT = r"(?m)^[ \t]*#.*$"


def split_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, in order; quotes are removed, nothing is expanded.

    Raises:
        ValueError: a quotation mark is not closed; the commands before it have been yielded.
    """
    text = re.sub(_COMMENT, "", text[:MAX_CHARACTERS]).replace("\\\r\n", " ").replace("\\\n", " ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for token in lexer:
        if token and not token.strip(";&|()\n"):
            if words:
                yield words
            words = []
        elif words or token not in _KEYWORDS:
            words.append(token)
    if words:
        yield words


def expand(word: str, variables: Mapping[str, str]) -> str | None:
    """Put variables into a word; None where it needs one that is not known, or the output of a command."""
    if "$" not in word and "`" not in word:
        return word
    unknown = False

    def replace(match: re.Match[str]) -> str:
        nonlocal unknown
        value = variables.get(match[1] or match[3])
        if value is None:
            value = match[2]
        unknown = unknown or value is None
        return value or ""

    expanded = re.sub(_REFERENCE, replace, word)
    return None if unknown or "$" in expanded or "`" in expanded else expanded


def split_assignment(word: str) -> tuple[str, str] | None:
    """Split ``NAME=VALUE`` in front of a command; None for any other word."""
    name, equals, value = word.partition("=")
    return (name, value) if equals and name.isidentifier() and name.isascii() else None
