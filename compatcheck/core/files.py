"""What a reader asks of a file system: one reading serves this machine, an image, and texts laid over either."""

from __future__ import annotations

import errno
import math
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol
else:
    Protocol = object  # to define one costs a millisecond at start-up

_BINARY_STARTS = (b"\x7fELF", b"MZ", b"\xfe\xed\xfa", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")

MOST_LEVELS = 100
"""Directories inside one another that are entered: the kernel looks each up again for every file below."""


class Files(Protocol):
    """A tree of files that is only read; paths are absolute, and errors are those of ``os``.

    Links are followed inside the tree, except where a method says otherwise; a loop is an OSError (ELOOP), as of the kernel.
    """

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a directory, in no order.

        Raises:
            OSError: there is none, it is no directory, or it may not be read.
        """

    def exists(self, path: str) -> bool:
        """Tell whether anything is there, links followed; False where it cannot be told."""

    def is_file(self, path: str) -> bool:
        """Tell whether a regular file is there; False where it cannot be told."""

    def is_program(self, path: str) -> bool:
        """Tell whether a file is a native program; one whose content was not kept, as in an image, counts as one."""

    def is_directory(self, path: str) -> bool:
        """Tell whether a directory is there; False where it cannot be told."""

    def read_text(self, path: str, limit: int = 65536) -> str:
        """Return the first ``limit`` characters of a file as UTF-8, what is not UTF-8 replaced.

        Raises:
            OSError: it cannot be read, or (in an image) its content was not kept.
        """

    def read_bytes(self, path: str, limit: int) -> bytes:
        """Return the first ``limit`` bytes of a file.

        Raises:
            OSError: as `read_text`.
        """

    def size_bytes(self, path: str) -> int:
        """Return the size of a file.

        Raises:
            OSError: there is none.
        """

    def modified(self, path: str) -> float:
        """Return when a file or directory was last changed, in seconds since 1970.

        Raises:
            OSError: there is none.
        """

    def identify(self, path: str) -> object:
        """Return what two names of one file or directory have in common.

        Raises:
            OSError: there is none.
        """

    def resolve(self, path: str) -> str:
        """Return the path without links (``os.path.realpath``); what does not exist stays as it is written."""


def _name(path: str) -> str:
    """Return a path that may be asked for; one with a NUL, which an inspected file may state, names nothing."""
    if "\0" in path:
        raise FileNotFoundError(errno.ENOENT, "a path with a NUL names no file", path)
    return path


def _regular(path: str) -> str:
    """Return a path that may be opened: a pipe in an inspected tree never gives anything, and a device gives without end."""
    mode = os.stat(_name(path)).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a directory is refused by the system
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return path


def open_at_once(path: str, flags: int) -> int:
    """Open a file for `open` without waiting: a pipe may have taken its place, and some of the kernel's give news alone.

    Raises:
        OSError: it cannot be opened, or is none that could be read again.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not _can_be_read_again(descriptor):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return descriptor


def _can_be_read_again(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return stat.S_ISDIR(status.st_mode)  # refused by the system
    try:
        return bool(status.st_size or not os.read(descriptor, 1) or not os.lseek(descriptor, 0, os.SEEK_SET))
    except OSError:
        return False


class LocalFiles:
    """The files of this machine."""

    def list_names(self, folder: str) -> list[str]:
        """See `Files`."""
        return os.listdir(_name(folder))

    def exists(self, path: str) -> bool:
        """See `Files`."""
        try:
            return os.access(path, os.F_OK)  # os.path.exists raises and catches for each that is missing
        except ValueError:  # a NUL in the path
            return False

    def is_file(self, path: str) -> bool:
        """See `Files`."""
        return os.path.isfile(path)

    def is_program(self, path: str) -> bool:
        """See `Files`."""
        try:
            with open(_regular(path), "rb", opener=open_at_once) as file:
                return file.read(4).startswith(_BINARY_STARTS)
        except OSError:
            return False

    def is_directory(self, path: str) -> bool:
        """See `Files`."""
        return os.path.isdir(path)

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`."""
        with open(_regular(path), encoding="utf-8", errors="replace", opener=open_at_once) as file:
            return file.read(limit)

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Files`."""
        with open(_regular(path), "rb", opener=open_at_once) as file:
            return file.read(limit)

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        return os.stat(_name(path)).st_size

    def modified(self, path: str) -> float:
        """See `Files`."""
        return os.stat(_name(path)).st_mtime

    def identify(self, path: str) -> object:
        """See `Files`."""
        status = os.stat(_name(path))
        return (status.st_dev, status.st_ino) if status.st_ino else path

    def resolve(self, path: str) -> str:
        """See `Files`."""
        return os.path.realpath(path) if "\0" not in path else path


LOCAL = LocalFiles()
"""The files of this machine."""


class Overlay:
    """A tree of files in which some hold something else: a change before it is written, or what standard input gave."""

    def __init__(self, base: Files, contents: Mapping[str, bytes]) -> None:
        """Lay contents by path over a tree; links to a path lead to them, too."""
        self.base = base
        self.contents = {base.resolve(path): content for path, content in contents.items()}

    def _content(self, path: str) -> bytes | None:
        return self.contents.get(self.base.resolve(path))

    def list_names(self, folder: str) -> list[str]:
        """See `Files`; what is laid over is not listed."""
        return self.base.list_names(folder)

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return self._content(path) is not None or self.base.exists(path)

    def is_file(self, path: str) -> bool:
        """See `Files`."""
        return self._content(path) is not None or self.base.is_file(path)

    def is_program(self, path: str) -> bool:
        """See `Files`."""
        return self._content(path) is None and self.base.is_program(path)

    def is_directory(self, path: str) -> bool:
        """See `Files`."""
        return self._content(path) is None and self.base.is_directory(path)

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`."""
        content = self._content(path)
        return self.base.read_text(path, limit) if content is None else content.decode("utf-8", "replace")[:limit]

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Files`."""
        content = self._content(path)
        return self.base.read_bytes(path, limit) if content is None else content[:limit]

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        content = self._content(path)
        return self.base.size_bytes(path) if content is None else len(content)

    def modified(self, path: str) -> float:
        """See `Files`; what is laid over was changed just now, so that nothing kept of the file before it is taken for it."""
        return self.base.modified(path) if self._content(path) is None else math.inf

    def identify(self, path: str) -> object:
        """See `Files`."""
        return self.base.identify(path) if self._content(path) is None else self.base.resolve(path)

    def resolve(self, path: str) -> str:
        """See `Files`."""
        return self.base.resolve(path)


class Confined:
    """A tree of files of which only what lies in some directories, behind all links, can be seen and read."""

    def __init__(self, base: Files, roots: Iterable[str]) -> None:
        """Take directories; their own links are followed."""
        self.base = base
        self.roots = tuple(os.path.join(base.resolve(root), "") for root in roots)

    def _holds(self, path: str) -> bool:
        return os.path.join(self.base.resolve(path), "").startswith(self.roots)

    def _inside(self, path: str) -> str:
        if not self._holds(path):
            raise PermissionError(errno.EACCES, "lies outside of the directory that may be read", path)
        return path

    def list_names(self, folder: str) -> list[str]:
        """See `Files`."""
        return self.base.list_names(self._inside(folder))

    def exists(self, path: str) -> bool:
        """See `Files`; nobody is told what there is outside."""
        return self._holds(path) and self.base.exists(path)

    def is_file(self, path: str) -> bool:
        """See `Files`."""
        return self._holds(path) and self.base.is_file(path)

    def is_program(self, path: str) -> bool:
        """See `Files`."""
        return self._holds(path) and self.base.is_program(path)

    def is_directory(self, path: str) -> bool:
        """See `Files`."""
        return self._holds(path) and self.base.is_directory(path)

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`."""
        return self.base.read_text(self._inside(path), limit)

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Files`."""
        return self.base.read_bytes(self._inside(path), limit)

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        return self.base.size_bytes(self._inside(path))

    def modified(self, path: str) -> float:
        """See `Files`."""
        return self.base.modified(self._inside(path))

    def identify(self, path: str) -> object:
        """See `Files`."""
        return self.base.identify(self._inside(path))

    def resolve(self, path: str) -> str:
        """See `Files`."""
        return self.base.resolve(path)


class ReadLog(Overlay):
    """A tree of files that notes which of them were read."""

    def __init__(self, base: Files) -> None:
        """Start with none."""
        super().__init__(base, {})
        self.read: set[str] = set()
        """Paths without links."""
        self.asked: set[str] = set()
        """Those whose kind was asked for, as before each reading: also what is no file."""

    def is_directory(self, path: str) -> bool:
        """See `Files`."""
        self.asked.add(self.base.resolve(path))
        return self.base.is_directory(path)

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`."""
        self.read.add(self.base.resolve(path))
        return self.base.read_text(path, limit)

    def read_bytes(self, path: str, limit: int) -> bytes:
        """See `Files`."""
        self.read.add(self.base.resolve(path))
        return self.base.read_bytes(path, limit)
