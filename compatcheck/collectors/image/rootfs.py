"""A root directory on this machine, read as if it were the one layer of an image; no link in it is followed."""

from __future__ import annotations

import os
import stat

from compatcheck.collectors.image.layers import Budget, LayerRecord, LayerScan, LimitError
from compatcheck.collectors.image.tar import DIRECTORY, FILE, LINK, OTHER, Entry
from compatcheck.core.files import MOST_LEVELS

_PASSED_OVER = frozenset({"proc", "sys", "dev"})
"""Directories of a running system's root that hold no files."""


class _LocalContent:
    """A file that is opened when something of it is asked for."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def read(self, count: int) -> bytes:
        """See `compatcheck.collectors.image.layers.Content`."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(count)


def scan_directory(path: str, budget: Budget) -> LayerRecord:
    """Read the files of a root directory.

    Raises:
        OSError: it cannot be listed.
    """
    scan = LayerScan(budget)
    root = os.fsencode(path)
    waiting: list[tuple[bytes, bytes]] = [(root, b"")]
    denied: list[str] = []
    try:
        while waiting:
            folder, inside = waiting.pop()
            try:
                children = list(os.scandir(folder))
            except OSError as error:
                if not inside:
                    raise
                denied.append(f"/{os.fsdecode(inside)} could not be listed: {error.strerror}")
                continue
            for child in children:
                name = inside + b"/" + child.name if inside else child.name
                try:
                    entry = _describe(child, name)
                    scan.take(entry, _LocalContent(child.path))
                except OSError as error:
                    denied.append(f"/{os.fsdecode(name)} could not be read: {error.strerror}")
                    continue
                if entry.kind == DIRECTORY and (inside or os.fsdecode(child.name) not in _PASSED_OVER):
                    if name.count(b"/") < MOST_LEVELS:
                        waiting.append((child.path, name))
                    else:
                        denied.append(f"/{os.fsdecode(name)} lies below {MOST_LEVELS} directories, and was not entered")
    except LimitError as error:
        scan.problems.append(str(error))
    if denied:
        more = f", and {len(denied) - 1:,} more" if len(denied) > 1 else ""
        scan.problems.append(f"{denied[0]}{more}")
    return scan.finish()


def _describe(child: os.DirEntry[bytes], name: bytes) -> Entry:
    status = child.stat(follow_symlinks=False)
    target = b""
    if stat.S_ISDIR(status.st_mode):
        kind = DIRECTORY
    elif stat.S_ISLNK(status.st_mode):
        kind, target = LINK, os.readlink(child.path)
    else:
        kind = FILE if stat.S_ISREG(status.st_mode) else OTHER
    return Entry(name, kind, status.st_size, status.st_mtime, target, sparse=False)
