"""A command line that names no command: text on standard input, or files, answered by the command that they are for."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import BytesIO, TextIOWrapper

from compatcheck.checking.pasted_blocks import holds_inputs
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.source import Source
from compatcheck.core.textfile import STANDARD_INPUT, read_standard_input
from compatcheck.oom.log import decode_log, read_log
from compatcheck.oom.message import has_message
from compatcheck.oom.told import find_words

_PATIENCE_SECONDS = 1.0
"""After which a person who sees nothing happen is told that this waits for text."""


def complete_line(arguments: list[str]) -> list[str] | None:
    """Return a command line with the command that its files, or the text on standard input, are for.

    Args:
        arguments: what was given, without a command: files, and options of the command that they are for.

    Returns:
        `oom` where a text holds a message about memory, with that text first; else `check`. None where nothing was given but
        options.

    Raises:
        InputError: standard input cannot be read.
        UsageError: it is empty.
    """
    if not arguments:
        if not is_given():
            return None
        if not _keep_standard_input().strip():
            raise UsageError(
                "nothing on standard input, and no command or file", hint="`compatcheck --help` shows both"
            )
        arguments = ["-"]
    elif "-" in arguments:
        _keep_standard_input()
    pairs = list(zip(arguments, ["", *arguments], strict=False))
    if not any(name[:1] != "-" and before[:2] != "--" for name, before in pairs) and "-" not in arguments:
        if not is_given() or not _keep_standard_input().strip():
            return None
        arguments, pairs = [*arguments, "-"], [*pairs, ("-", "")]
    for name, before in pairs:
        if not before.startswith("--") and holds_message(name):
            rest = list(arguments)
            rest.remove(name)
            return ["oom", name, *rest]
    return ["check", *arguments]


def is_input(word: str) -> bool:
    """Tell whether a word that is no command can be a file of this machine, or standard input."""
    return word == "-" or os.path.exists(word)


def is_given() -> bool:
    """Tell whether standard input is there and no terminal."""
    with suppress(OSError, ValueError, AttributeError):
        return not os.isatty(sys.stdin.fileno())
    return False


def _keep_standard_input() -> bytes:
    """Read standard input, which can be done only once, and put it back."""
    with suppress(OSError, ValueError):
        import select  # noqa: PLC0415 (beside its use)

        if sys.stderr.isatty() and not select.select([sys.stdin], [], [], _PATIENCE_SECONDS)[0]:
            sys.stderr.write("reading standard input; `compatcheck --help` shows what else there is\n")
    try:
        data = read_standard_input()
    except InputError as error:
        raise InputError(
            error.message, source=Source(STANDARD_INPUT), hint="`compatcheck oom -` reads a log of any length"
        ) from None
    sys.stdin = TextIOWrapper(BytesIO(data), encoding="utf-8")
    return data


def holds_message(name: str) -> bool:
    """Tell whether an input is a text with a message about memory; what cannot be read holds none, and its command says why."""
    with suppress(InputError):
        if name != "-":
            return os.path.isfile(name) and has_message(read_log(name).text)
        data = sys.stdin.buffer.read()
        sys.stdin.buffer.seek(0)
        text = decode_log(data)
        return has_message(text) or (find_words(text) is not None and not holds_inputs(data))
    return False
