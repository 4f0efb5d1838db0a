"""Texts of files with changes at known places: diffs, and writing without losing anything."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compatcheck.core.fix import FileChange, TextEdit

_AGAIN = "run compatcheck fix again"


def read_exact(path: str) -> str:
    """Read a file with its byte order mark and line ends.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 and is not edited", source=Source(path), hint="save it as UTF-8") from None


def apply_edits(texts: Mapping[str, str], edits: Iterable[TextEdit]) -> dict[str, str]:
    """Return the texts with the edits made."""
    result = dict(texts)
    for edit in sorted(set(edits), reverse=True):
        text = result[edit.path]
        result[edit.path] = text[: edit.start] + edit.new + text[edit.end :]
    return result


def line_of(text: str, position: int) -> int:
    """Return the line of a character, 1 for the first."""
    return text.count("\n", 0, position) + 1


def unified_diff(changes: Iterable[FileChange]) -> str:
    """Write changes as one diff that `git apply` and `patch -p1` take; line ends and the missing one at the end are kept."""
    from difflib import unified_diff as diff  # noqa: PLC0415 (only where one is shown)

    parts: list[str] = []
    for change in changes:
        path = change.path.replace(os.sep, "/")
        before, after = _lines(change.before), _lines(change.after)
        parts += [
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in diff(before, after, _quote(f"a/{path}"), _quote(f"b/{path}"))
        ]
    return "".join(parts)


def _quote(name: str) -> str:
    """Write a name as git does: one with a line feed in it would else go on as lines of the diff, about other files."""
    if re.search(r'[\x00-\x1f\x7f"\\]', name) is None:
        return name
    written = re.sub(r'(["\\])', r"\\\1", name)
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda sign: f"\\{ord(sign[0]):03o}", written) + '"'


def _lines(text: str) -> list[str]:
    """Split at line feeds alone, as git does."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def write_changes(changes: Iterable[FileChange], is_inside: Callable[[str], bool]) -> None:
    """Write files, each by renaming a complete new one over it; nothing is written unless all of them can be.

    Args:
        changes: what is written.
        is_inside: tells of a file without links whether it may be: a checkout includes and links to what it likes.

    Raises:
        InputError: a file is not as it was read, lies elsewhere, or cannot be written.
    """
    changes = tuple(changes)
    for change in changes:
        _require_unchanged(change)
        real = os.path.realpath(change.path)
        if not is_inside(real):
            raise InputError(
                f"is {real}, outside of what was named; nothing was changed",
                source=Source(change.path),
                hint="name it, too",
            )
        if not (os.access(real, os.W_OK) and os.access(os.path.dirname(real), os.W_OK)):
            raise InputError(
                "cannot be written; nothing was changed",
                source=Source(change.path),
                hint="run as a user who may write it",
            )
    for change in changes:
        _replace(change)


def _require_unchanged(change: FileChange) -> None:
    try:
        same = read_exact(change.path) == change.before
    except InputError as error:
        raise InputError(f"{error.message}; nothing was changed", source=Source(change.path), hint=error.hint) from None
    if not same:
        raise InputError("changed while it was looked at; nothing was written", source=Source(change.path), hint=_AGAIN)


def _replace(change: FileChange) -> None:
    import tempfile  # noqa: PLC0415 (only where something is written)

    real = os.path.realpath(change.path)
    try:
        before = os.stat(real)
        handle, scratch = tempfile.mkstemp(prefix=".compatcheck-", dir=os.path.dirname(real))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(change.after.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError, AttributeError):  # another's file, or a system without owners
                os.chown(scratch, before.st_uid, before.st_gid)
            os.chmod(scratch, stat.S_IMODE(before.st_mode))
            os.replace(scratch, real)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise InputError(
            f"could not be written: {error.strerror}",
            source=Source(change.path),
            hint="check its directory and the space on it",
        ) from None
