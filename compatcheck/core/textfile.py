"""Reading a file that a person named: every way it can fail becomes an error with a place and a remedy."""

from __future__ import annotations

import codecs
import os
import re
import sys
from contextlib import contextmanager

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files, open_at_once
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.redaction import redact
from compatcheck.core.source import Source
from compatcheck.core.units import MIB, format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".zsh", ".ksh", ".pbs", ".qsub", ".lsf")
"""Ends of the names of launch scripts."""
CONFIGURATIONS = (".json", ".yaml", ".yml", ".hjson", ".jsonc", ".toml")
"""Ends of the names of configurations."""
POLICY_FILE = "compatcheck.toml"
_JOBS = (".job", ".sub", ".submit", ".run", ".cmd", ".command", ".batch", ".slrm")
"""Ends of names that launch scripts have, too."""
_SHELL = lazy_compile(rb"(?:\xef\xbb\xbf)?#![ \t]*\S*?(?:/env[ \t]+(?:-\S+[ \t]+)*)?(?:ba|z|k|da)?sh\b")
STANDARD_INPUT = "<stdin>"
"""Path that stands for standard input: `-` on the command line."""

MAX_BYTES = 64 * MIB
"""Largest text file that is read, in bytes: lock files stay far below, a dump given by mistake does not."""

MAX_DEPTH = 100
"""Most levels of lists and mappings in one another, whatever the syntax: SBOMs nest components a few levels deep."""

_ECHO_CHARACTERS = 100
_CONFLICT = r"(?m)^<{7}(?: |\r?$)"


class Place(NamedTuple):
    """Where an entry of a file stands, in characters from its beginning."""

    line: int
    """Line of the key, 1 for the first."""
    key: int
    start: int
    """Where its value begins."""
    end: int


def may_name_script(path: str) -> bool:
    """Tell whether a launch script may have this name: one of theirs, or none that says what a file is."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return name.endswith((*SCRIPTS, *_JOBS)) or "." not in name


def is_script(path: str, files: Files = LOCAL) -> bool:
    """Tell whether a file is a launch script: by its name or, where that says nothing, by its first line."""
    try:
        return path.lower().endswith(SCRIPTS) or (
            may_name_script(path) and files.is_file(path) and reads_as_script(path, files.read_bytes(path, 128))
        )
    except OSError:
        return False


def reads_as_script(path: str, head: bytes) -> bool:
    """Tell whether a file is a launch script by its name and how it begins."""
    return path.lower().endswith(SCRIPTS) or (may_name_script(path) and _SHELL.match(head) is not None)


def read_bytes(path: str, files: Files = LOCAL, *, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file.

    Raises:
        InputError: it is missing, a directory, a pipe or device, larger than ``limit`` bytes, or not readable.
    """
    source = Source(path)
    too_large = "is {} large; at most {} are read"
    with _said_of(path, files):
        _check_regular(path, files)
        size = files.size_bytes(path)
        data = b"" if size > limit else files.read_bytes(path, limit + 1)
    if max(size, len(data)) > limit:
        message = too_large.format(format_bytes(max(size, len(data))), format_bytes(limit))
        raise InputError(message, source=source, hint="check that this is the file you mean")
    if len(data) < size:
        message = f"is kept only in part: {format_bytes(len(data))} of {format_bytes(size)}"
        raise InputError(message, source=source, hint="name a copy of the file itself")
    return data


def open_file(path: str) -> IO[bytes]:
    """Open a regular file of this machine that is read in pieces, for it may be of any size.

    Raises:
        InputError: it is missing, a directory, a pipe or device, or not readable.
    """
    with _said_of(path, LOCAL):
        _check_regular(path, LOCAL)
        return open(path, "rb", opener=open_at_once)


def _check_regular(path: str, files: Files) -> None:
    """Refuse what is no regular file before it is opened: a pipe may never give anything."""
    if files.is_directory(path):
        message = "is a directory, not a file"
        raise InputError(message, source=Source(path), hint="name the file inside it, or check the directory")
    if not files.is_file(path) and files.exists(path):
        message = "is not a regular file"
        raise InputError(message, source=Source(path), hint="write its content to a file and name that")


@contextmanager
def _said_of(path: str, files: Files) -> Iterator[None]:
    """Say of a file why it could not be read."""
    try:
        yield
    except FileNotFoundError:
        message = "no such file"
        raise InputError(message, source=Source(path), hint=_find_beside(path, files)) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        message = f"could not be read: {reason}"
        raise InputError(message, source=Source(path), hint="check the path and its permissions") from None


def _find_beside(path: str, files: Files) -> str:
    """Say what to do about a file that is not there: look at the one beside it whose name is most like its own."""
    from compatcheck.core.nearest import find_nearest  # noqa: PLC0415 (only on the way to an error)
    from compatcheck.core.programs import leads_out  # noqa: PLC0415 (only on the way to an error)

    folder, name = os.path.split(path)
    try:
        listed = [] if leads_out(path) else files.list_names(folder or os.curdir)
        names = [one for one in listed if one != name]  # a link that leads nowhere
    except (OSError, ValueError):
        names = []
    near = find_nearest(name, names)
    return "check the path" + (f"; did you mean {os.path.join(folder, near)}?" if near else "")


def open_standard_input() -> IO[bytes]:
    """Return standard input, which can be read only once.

    Raises:
        InputError: it is closed.
    """
    if sys.stdin is None or sys.stdin.closed:
        message = "standard input is closed"
        raise InputError(
            message, source=Source(STANDARD_INPUT), hint="name a file, or send one: compatcheck check - < FILE"
        )
    return sys.stdin.buffer


def read_standard_input() -> bytes:
    """Read standard input to its end; that can be done only once.

    Raises:
        InputError: it is closed, cannot be read, or is larger than `MAX_BYTES`.
    """
    source = Source(STANDARD_INPUT)
    try:
        data = open_standard_input().read(MAX_BYTES + 1)
    except OSError as error:
        message = f"could not be read: {error.strerror}"
        raise InputError(message, source=source, hint="name a file instead") from None
    if len(data) > MAX_BYTES:
        message = f"is more than {format_bytes(MAX_BYTES)} large"
        raise InputError(message, source=source, hint="check that this is the input you mean")
    return data


def read_text(path: str, files: Files = LOCAL, *, limit: int = MAX_BYTES) -> str:
    """Read a text file; see `read_bytes` and `decode_text`.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    return decode_text(read_bytes(path, files, limit=limit), path)


def read_utf8(path: str, files: Files = LOCAL, *, limit: int = MAX_BYTES) -> str:
    """Read a text of a kind whose own program reads UTF-8 alone: TOML, a Dockerfile, a script.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    return _decode_utf8(read_bytes(path, files, limit=limit), path)


def decode_text(data: bytes, path: str) -> str:
    """Decode UTF-8, with or without a byte order mark, or UTF-16 or 32, which ``>`` of a Windows shell writes.

    Raises:
        InputError: it is in none of them, or holds zero bytes; with the line.
    """
    text = _decode_wide(data, path)
    if text is None:
        text = _decode_utf8(data, path)
    if "\0" in text:
        message = "holds NUL bytes, so it is not a text file"
        hint = "save it as UTF-8 text, or check that this is the file you mean"
        raise InputError(message, source=Source(path, line=text.count("\n", 0, text.index("\0")) + 1), hint=hint)
    return text


def _decode_wide(data: bytes, path: str) -> str | None:
    """Decode UTF-16 or 32: told by its mark, or without one by the zero bytes around an opening bracket (RFC 4627, 3)."""
    marked = data[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE} or data[:4] == codecs.BOM_UTF32_BE
    if not marked and (b"\0" not in data[:4] or data[:4].strip(b"\0")[:1] not in {b"{", b"["}):
        return None
    import json  # noqa: PLC0415 (only for what is not UTF-8)

    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"is not {encoding.upper()}, as its first bytes say: {error.reason}"
        raise InputError(message, source=Source(path), hint="save the file as UTF-8") from None


def _decode_utf8(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        message = f"is not UTF-8: byte 0x{data[error.start]:02x} at column {column}"
        raise InputError(message, source=Source(path, line=line), hint="save the file as UTF-8") from None


def advise_mending(text: str, otherwise: str) -> str:
    """Say how a text that could not be parsed is mended: markers that a merge of git left behind are named with their line."""
    marker = re.search(_CONFLICT, text)
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
