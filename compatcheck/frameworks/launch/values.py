"""Values of command-line arguments: typed where the text is known, explained where it is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.command import Word


class Argument(NamedTuple):
    """The value one option was given."""

    value: object
    """Typed value; a list where the option takes several words. Meaningless when ``why`` is set."""
    line: int | None
    why: str | None = None
    """Why the value is not known; None when it is."""


def read_scalar(text: str) -> object:
    """Read a word as argparse's types would: a boolean, a number, or the text itself."""
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if re.fullmatch(r"[+-]?\d+", text.strip()) and len(text) < _DIGITS:
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", lowered):
        return float(text)
    return text


_DIGITS = 40
"""Longer runs of digits are names, and Python would take long to convert them."""


def explain(word: Word) -> str:
    """Say what keeps a word from being known."""
    names = ", ".join(dict.fromkeys(word.unresolved)) or word.written
    return f"depends on {names}, which the script does not tell"


def as_argument(word: Word, text: str | None = None) -> Argument:
    """Read a word, or the part of it that is the value."""
    if word.text is None:
        return Argument(None, word.source.line, explain(word))
    return Argument(read_scalar(word.text if text is None else text), word.source.line)
