"""Values of command-line arguments: typed where the text is known, explained where it is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compatcheck.core.command import Word


class Argument(NamedTuple):
    """The value one option was given."""

    value: object
    """Typed value; a list where the option takes several words. Meaningless when ``why`` is set."""
    line: int | None
    why: str | None = None
    """Why the value is not known; None when it is."""
    used: int | None = None
    """Line of the command that uses the value, where it was written in another one."""
    written: str | None = None
    """A value that is not known as the script spells it, with what it knows filled in: ``$HOME/models/Qwen2.5-7B``."""


def value_of(options: Mapping[str, Argument], key: str, left_out: object = None) -> Any:  # noqa: ANN401 (configuration)
    """Return a value, what it is where it is left out, None where nobody knows it."""
    argument = options.get(key)
    return left_out if argument is None else argument.value if argument.why is None else None


def read_scalar(text: str) -> object:
    """Read a word as argparse's types would: a boolean, a number, or the text itself."""
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if re.fullmatch(r"[+-]?\d+", lowered) and len(text) < MAX_DIGITS:
        return int(lowered)
    if re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", lowered):
        return float(lowered)
    return text


MAX_DIGITS = 40
"""Longer runs of digits are names, and Python would take long to convert them."""


def explain(word: Word) -> str:
    """Say what keeps a word from being known."""
    names = ", ".join(dict.fromkeys(word.unresolved)) or word.written
    return f"depends on {names}, which the script does not tell"


def unknown_argument(word: Word, written: str | None = None) -> Argument:
    """Make the argument of a word that nobody can tell; ``written`` is the part of it that is the value."""
    return Argument(None, word.source.line, explain(word), word.source.used, written)


def as_argument(word: Word, text: str | None = None) -> Argument:
    """Read a word, or the part of it that is the value."""
    if word.text is None:
        return unknown_argument(word, word.written if text is None else text)
    return Argument(read_scalar(word.text if text is None else text), word.source.line, None, word.source.used)


_INNER = lazy_compile(r"(?<=\S)--(?P<flag>[A-Za-z][\w.-]*)|(?<![\w.])(?P<key>\w+(?:\.\w+)+)=")
"""An option, or a dotted key with its equals sign, inside of a value."""


def part_joined(options: Mapping[str, Argument], known: Collection[str]) -> dict[str, Argument]:
    """Tell values that hold another setting, for a blank is missing between them: both are not known.

    A backslash behind ``n=64`` at the end of a line joins the next line to the word where that line starts without a blank.

    Args:
        options: by key.
        known: keys of the program.
    """
    found: dict[str, Argument] = {}
    longest = max(map(len, known), default=0)
    for key, argument in options.items():
        parts = argument.value if isinstance(argument.value, list) else [argument.value]
        text = " ".join(part for part in parts if isinstance(part, str) and part[:1] not in {"'", '"', "[", "{"})
        matches = (_find_end(match, known, longest) for match in _INNER.finditer(text))
        inner = [name for name in matches if name is not None]
        if argument.why is None and inner:
            why = f"{text!r} holds {', '.join(inner)} as well: a blank is missing"
            found[key] = Argument(None, argument.line, why)
            found.update({name: Argument(None, argument.line, why) for name in inner if name not in options})
    return found


def _find_end(match: re.Match[str], known: Collection[str], longest: int) -> str | None:
    """Return the known key that a match is or ends with: ``64data.n=`` ends with ``data.n``."""
    if match["flag"]:
        name = match["flag"].replace("-", "_")
        return name if name in known else None
    written = match["key"][-longest:]
    return next((written[at:] for at in range(len(written)) if written[at:] in known), None)
