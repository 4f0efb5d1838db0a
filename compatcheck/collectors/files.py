"""What a collector asks of a file system, so that one reading serves this machine's files and those inside an image."""

from __future__ import annotations

import os
from typing import Protocol

_BINARY_STARTS = (b"\x7fELF", b"MZ", b"\xfe\xed\xfa", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


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


class LocalFiles:
    """The files of this machine."""

    def list_names(self, folder: str) -> list[str]:
        """See `Files`."""
        return os.listdir(folder)

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return os.access(path, os.F_OK)  # os.path.exists raises and catches for each that is missing

    def is_file(self, path: str) -> bool:
        """See `Files`."""
        return os.path.isfile(path)

    def is_program(self, path: str) -> bool:
        """See `Files`."""
        try:
            with open(path, "rb") as file:
                return file.read(4).startswith(_BINARY_STARTS)
        except OSError:
            return False

    def is_directory(self, path: str) -> bool:
        """See `Files`."""
        return os.path.isdir(path)

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`."""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        return os.stat(path).st_size

    def modified(self, path: str) -> float:
        """See `Files`."""
        return os.stat(path).st_mtime

    def identify(self, path: str) -> object:
        """See `Files`."""
        status = os.stat(path)
        return (status.st_dev, status.st_ino) if status.st_ino else path

    def resolve(self, path: str) -> str:
        """See `Files`."""
        return os.path.realpath(path)


LOCAL = LocalFiles()
"""The files of this machine."""
