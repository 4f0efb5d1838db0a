"""Installed packages in an rpm database in SQLite's format, the default since rpm 4.16 (RHEL 9, Fedora).

It holds one header per package: an index of tags over a store of values, big-endian (``lib/header.c`` of rpm). Only name and
version are read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME, _VERSION, _STRING = 1000, 1001, 6
"""Tags of ``include/rpm/rpmtag.h`` and the type of their values."""
_ENTRY = struct.Struct(">IIII")
"""Tag, type, offset into the store, count."""
_MAX_ENTRIES = 0xFFFF
"""Most entries of one header, as rpm has it."""

_SQLITE_START = b"SQLite format 3\0"
_MAX_STEPS = 50_000_000
"""Instructions of SQLite's machine after which reading stops; a database of 1,000 packages takes some thousands."""
_SQLITE_LIMIT_LENGTH = 0
"""Number of the limit on the size of a value (``sqlite3.h``)."""
_SQLITE_JOURNAL = slice(18, 20)
"""Whether a write-ahead log belongs to the file; one that is opened from memory must say no."""


class RpmError(ValueError):
    """An rpm database is damaged, or of a format that cannot be read here."""


def read_rpm_packages(data: bytes) -> list[tuple[str, str]]:
    """Return name and version of every package in a database.

    Raises:
        RpmError: it is damaged, or of a format that cannot be read.
    """
    packages = []
    seen_bytes = 0
    try:
        for header in _sqlite_headers(data):
            seen_bytes += len(header)
            if seen_bytes > 2 * len(data):
                msg = "the rpm database is damaged: its records overlap"
                raise RpmError(msg)
            package = read_header(header)
            if package is not None:
                packages.append(package)
    except (struct.error, IndexError) as error:
        msg = f"the rpm database is damaged: {error}"
        raise RpmError(msg) from error
    return packages


def read_header(header: bytes) -> tuple[str, str] | None:
    """Return name and version of one header; None where it has no such tags.

    Raises:
        struct.error: it is cut off.
    """
    entries, size = struct.unpack_from(">II", header)
    store = 8 + entries * _ENTRY.size
    if entries > _MAX_ENTRIES or store + size > len(header):
        msg = "a header is longer than its record"
        raise RpmError(msg)
    found = {}
    for tag, kind, offset, _ in _ENTRY.iter_unpack(header[8:store]):
        if tag in {_NAME, _VERSION} and kind == _STRING and offset < size:
            end = header.find(b"\0", store + offset)
            found[tag] = header[store + offset : end if end >= 0 else None].decode("utf-8", "replace")
    return (found[_NAME], found[_VERSION]) if len(found) == 2 else None


def _sqlite_headers(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_SQLITE_START):
        msg = "the rpm database has a format that is not known"
        raise RpmError(msg)
    import sqlite3  # noqa: PLC0415 (images with such a database only)

    connection = sqlite3.connect(":memory:")
    try:
        if not (hasattr(connection, "deserialize") and hasattr(connection, "setlimit")):
            msg = "reading an rpm database in SQLite's format takes Python 3.11"
            raise RpmError(msg)
        start = bytearray(data)
        start[_SQLITE_JOURNAL] = b"\1\1"
        connection.deserialize(bytes(start))
        connection.setlimit(_SQLITE_LIMIT_LENGTH, len(data))
        # A hostile schema can compute without end.
        connection.set_progress_handler(lambda: 1, _MAX_STEPS)
        if connection.execute("SELECT type FROM sqlite_master WHERE name = 'Packages'").fetchone() != ("table",):
            msg = "the rpm database has no table of packages"
            raise RpmError(msg)
        yield from (row[0] for row in connection.execute("SELECT blob FROM Packages") if isinstance(row[0], bytes))
    except sqlite3.Error as error:
        msg = f"the rpm database is damaged: {error}"
        raise RpmError(msg) from error
    finally:
        connection.close()
