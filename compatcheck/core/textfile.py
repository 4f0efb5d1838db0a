"""Reading a file that a person named: every way it can fail becomes an error with a place and a remedy."""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.redaction import redact
from compatcheck.core.source import Source
from compatcheck.core.units import MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

STANDARD_INPUT = "<stdin>"
"""Path that stands for standard input: `-` on the command line."""

MAX_BYTES = 64 * MIB
"""Largest text file that is read, in bytes: lock files stay far below, a dump given by mistake does not."""

_ECHO_CHARACTERS = 100
_CONFLICT = re.compile(r"^<{7}(?: |\r?$)", re.MULTILINE)

_PRETENDED: dict[str, bytes] = {}
"""Files that are read as if they held something else, by their real path; see `pretend`."""


@contextmanager
def pretend(texts: Mapping[str, str]) -> Iterator[None]:
    """Read these files as if they held these texts: how a change of them is checked before it is written.

    Args:
        texts: path → text, byte order mark included.
    """
    before = dict(_PRETENDED)
    _PRETENDED.update({os.path.realpath(path): text.encode("utf-8") for path, text in texts.items()})
    try:
        yield
    finally:
        _PRETENDED.clear()
        _PRETENDED.update(before)


def pretended(path: str) -> bytes | None:
    """Return what a file is pretended to hold, None when nothing is."""
    return _PRETENDED.get(os.path.realpath(path)) if _PRETENDED else None


def read_bytes(path: str, *, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file.

    Raises:
        InputError: it is missing, a directory, a pipe or device, larger than ``limit`` bytes, or not readable.
    """
    if path == STANDARD_INPUT:
        return read_standard_input(limit=limit)
    if (instead := pretended(path)) is not None:
        return instead
    source = Source(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            message = "is a directory, not a file"
            raise InputError(message, source=source, hint="name the file inside it, or check the directory")
        if not stat.S_ISREG(status.st_mode):
            message = "is not a regular file"
            raise InputError(message, source=source, hint="write its content to a file and name that")
        if status.st_size > limit:
            message = f"is {format_bytes(status.st_size)} large; at most {format_bytes(limit)} are read"
            raise InputError(message, source=source, hint="check that this is the file you mean")
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        message = "no such file"
        raise InputError(message, source=source, hint="check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        message = f"could not be read: {reason}"
        raise InputError(message, source=source, hint="check the path and its permissions") from None
    if len(data) > limit:
        message = f"is more than {format_bytes(limit)} large"
        raise InputError(message, source=source, hint="check that this is the file you mean")
    return data


def read_standard_input(*, limit: int = MAX_BYTES) -> bytes:
    """Read standard input to its end; it is kept, because it can be read only once and is looked at more than once.

    Raises:
        InputError: it is closed, cannot be read, or is larger than ``limit`` bytes.
    """
    source = Source(STANDARD_INPUT)
    if sys.stdin is None or sys.stdin.closed:
        message = "standard input is closed"
        raise InputError(message, source=source, hint="name a file, or send one: compatcheck check - < FILE")
    try:
        data = _drain(sys.stdin)
    except OSError as error:
        message = f"could not be read: {error.strerror}"
        raise InputError(message, source=source, hint="name a file instead") from None
    if len(data) > limit:
        message = f"is more than {format_bytes(limit)} large"
        raise InputError(message, source=source, hint="check that this is the input you mean")
    return data


@lru_cache(maxsize=1)
def _drain(stream: TextIO) -> bytes:
    return stream.buffer.read(MAX_BYTES + 1)


def decode_utf8(data: bytes, path: str) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises:
        InputError: naming the line and column of the first byte that is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        message = f"is not UTF-8: byte 0x{data[error.start]:02x} at column {column}"
        raise InputError(message, source=Source(path, line=line), hint="save the file as UTF-8") from None


def decode_text(data: bytes, path: str) -> str:
    """Decode UTF-8, or UTF-16 with its byte order mark, which ``>`` of a Windows shell writes.

    Raises:
        InputError: as `decode_utf8`; UTF-16 that is cut in the middle of a character.
    """
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return decode_utf8(data, path)
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError as error:
        message = f"is not UTF-16, as its first bytes say: {error.reason}"
        raise InputError(message, source=Source(path), hint="save the file as UTF-8") from None


def advise_mending(text: str, otherwise: str) -> str:
    """Say how a text that could not be parsed is mended: markers that a merge of git left behind are named with their line."""
    marker = _CONFLICT.search(text)
    if marker is None:
        return otherwise
    line = text.count("\n", 0, marker.start()) + 1
    return f"resolve the merge conflict that begins at line {line}"


def echo(text: str) -> str:
    """Quote a piece of an input for an error message: redacted, printable, at most a hundred characters."""
    shown = redact(text)
    return repr(shown if len(shown) <= _ECHO_CHARACTERS else shown[:_ECHO_CHARACTERS] + "…")


def echo_value(value: object) -> str:
    """Quote a value of a parsed file for an error message; of a table or an array only that it is one."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    return echo(value) if isinstance(value, str) else echo(str(value)) if value is not None else "nothing"
