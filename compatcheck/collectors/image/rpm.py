"""Installed packages in an rpm database, in the three formats rpm has used: SQLite, ndb and Berkeley DB.

All three hold one header per package: an index of tags over a store of values, big-endian (``lib/header.c`` of rpm). Only
name and version are read. Berkeley DB is what rpm wrote up to 4.15 (RHEL 8, CentOS 7, Amazon Linux 2), ndb is SUSE's,
SQLite the default since 4.16 (RHEL 9, Fedora).
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

_NDB_START = b"RpmP"
_NDB_RECORD = struct.Struct("<4sIII")
"""A slot: magic, package, first block, blocks. A blob: magic, package, checksum, length (``lib/backend/ndb/rpmpkg.c``)."""
_NDB_SLOT_PAGE = 4096

_BDB_MAGIC = 0x061561
_BDB_HASH_PAGES = frozenset({2, 13})
_BDB_OVERFLOW = 7
_BDB_OFF_PAGE = 3
"""Berkeley DB's ``src/dbinc/db_page.h``: pages of a hash, pages of a long value, and an item that lies on those."""
_BDB_HEADER = 26
_BDB_PAGE_SIZES = tuple(2**power for power in range(9, 17))


class RpmError(ValueError):
    """An rpm database is damaged, or of a format that cannot be read here."""


def read_rpm_packages(data: bytes) -> list[tuple[str, str]]:
    """Return name and version of every package in a database.

    Args:
        data: the whole file: ``rpmdb.sqlite``, ``Packages.db`` or ``Packages``.

    Raises:
        RpmError: it is damaged, or of a format that cannot be read.
    """
    packages = []
    seen_bytes = 0
    try:
        for header in _headers(data):
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


def _headers(data: bytes) -> Iterator[bytes]:
    if data.startswith(_SQLITE_START):
        return _sqlite_headers(data)
    if data.startswith(_NDB_START):
        return _ndb_headers(data)
    for order in "<>":
        if len(data) >= _BDB_HEADER and struct.unpack_from(f"{order}I", data, 12)[0] == _BDB_MAGIC:
            return _bdb_headers(data, order)
    msg = "the rpm database has a format that is not known"
    raise RpmError(msg)


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


def _ndb_headers(data: bytes) -> Iterator[bytes]:
    _, version, _, pages = _NDB_RECORD.unpack_from(data)
    end = pages * _NDB_SLOT_PAGE
    if version != 0 or end > len(data):
        msg = f"the rpm database has version {version} of its format, or is cut off"
        raise RpmError(msg)
    for position in range(2 * _NDB_RECORD.size, end, _NDB_RECORD.size):
        magic, package, block, _ = _NDB_RECORD.unpack_from(data, position)
        if magic != b"Slot" or not package:
            continue
        start = block * _NDB_RECORD.size
        magic, owner, _, length = _NDB_RECORD.unpack_from(data, start)
        if magic != b"BlbS" or owner != package:
            msg = f"the rpm database is damaged: package {package} is not where its slot says"
            raise RpmError(msg)
        start += _NDB_RECORD.size
        yield data[start : start + length]


def _bdb_headers(data: bytes, order: str) -> Iterator[bytes]:
    size = struct.unpack_from(f"{order}I", data, 20)[0]
    if size not in _BDB_PAGE_SIZES:
        msg = f"the rpm database has pages of {size} bytes"
        raise RpmError(msg)
    for start in range(size, len(data) - size + 1, size):
        if data[start + 25] not in _BDB_HASH_PAGES:
            continue
        items = struct.unpack_from(f"{order}H", data, start + 20)[0]
        offsets = struct.unpack_from(f"{order}{items}H", data, start + _BDB_HEADER)
        # Keys and values alternate; headers are too long for a page of their own and lie on others.
        for offset in offsets[1::2]:
            if offset + 12 <= size and data[start + offset] == _BDB_OFF_PAGE:
                first, length = struct.unpack_from(f"{order}II", data, start + offset + 4)
                yield _bdb_value(data, order, size, first, length)


def _bdb_value(data: bytes, order: str, size: int, page: int, length: int) -> bytes:
    """Join the pages of a long value; no page is read twice, so a chain that leads back ends."""
    parts = []
    seen = set()
    while page and page not in seen:
        seen.add(page)
        start = page * size
        following = struct.unpack_from(f"{order}I", data, start + 16)[0]
        if data[start + 25] != _BDB_OVERFLOW:
            break
        used = struct.unpack_from(f"{order}H", data, start + 22)[0]
        parts.append(data[start + _BDB_HEADER : start + (size if following else _BDB_HEADER + used)])
        page = following
    return b"".join(parts)[:length]
