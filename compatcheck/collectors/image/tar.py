"""Tar archives read forward, header by header (POSIX ustar and pax, GNU, and what came before them).

``tarfile`` is not used: it keeps every entry, reads a pax header of whatever size it claims into memory, follows a chain of
extension headers by recursion, and its fixes for hostile archives depend on the patch release of the interpreter. What is
needed of the format is small: names, sizes, links, and the first bytes of few files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.image.stream import Stream

BLOCK = 512
MAX_EXTENSION_BYTES = MIB
"""Longest pax or GNU long name header that is understood, as in Go's archive/tar, which docker writes and reads with."""

FREE_EXTENSIONS = 1_000_000
MAX_EXTENSIONS = 16
"""Extension headers and pax records of one archive, beyond the free ones, for each of its entries; writers use one to eight."""

FILE, HARD_LINK, LINK, DIRECTORY, OTHER = "file", "hard link", "link", "directory", "other"
"""Kinds of entry; `OTHER` are devices and pipes."""

_KINDS = {
    **dict.fromkeys((0, 0x30, 0x37), FILE),
    **dict.fromkeys((0x33, 0x34, 0x36), OTHER),
    0x31: HARD_LINK,
    0x32: LINK,
    0x35: DIRECTORY,
}
_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK, _SPARSE, _VOLUME = 0x78, 0x67, 0x4C, 0x4B, 0x53, 0x56
_ZEROS = bytes(BLOCK)
_PAX_KEYS = frozenset(
    {
        b"path",
        b"linkpath",
        b"size",
        b"mtime",
        b"GNU.sparse.name",
        b"GNU.sparse.realsize",
        b"GNU.sparse.size",
        b"GNU.sparse.major",
    }
)


class TarError(ValueError):
    """The archive is damaged or ends early; what came before it holds."""


class Entry(NamedTuple):
    """One file, directory or link of a tar archive."""

    name: bytes
    """As written."""
    kind: str
    size: int
    """Bytes of content; of a sparse file with its holes."""
    modified: float
    """Seconds since 1970."""
    target: bytes
    """What a link or hard link points to, as written."""
    sparse: bool
    """Whether holes were left out of the content, which is then not what the file holds."""


class TarReader:
    """The entries of one archive, in order; the content of the current one is a stream until the next is asked for."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.position = 0
        """Bytes of the current entry's content that have been read or passed over."""
        self._left = 0
        """Bytes of the current entry's content that have not been read."""
        self._padding = 0
        self._extensions_left = FREE_EXTENSIONS

    def __iter__(self) -> Iterator[Entry]:
        """Give the entries.

        Raises:
            TarError: a header makes no sense or the archive ends inside an entry.
        """
        common: dict[bytes, bytes] = {}
        while True:
            pax = common
            long_name = long_link = None
            while True:
                header = self._next_header()
                if header is None:
                    return
                kind = header[156]
                if kind in _KINDS:
                    break
                size = _number(header, 124, 136)
                if kind == _PAX:
                    pax = {**common, **self._parse_pax(self._extension(size))}
                elif kind == _PAX_GLOBAL:
                    common = {**common, **self._parse_pax(self._extension(size))}
                    pax = {**common, **pax}
                elif kind == _LONG_NAME:
                    long_name = self._extension(size).partition(b"\0")[0]
                elif kind == _LONG_LINK:
                    long_link = self._extension(size).partition(b"\0")[0]
                elif kind == _VOLUME:
                    self._begin(size)
                else:
                    break
            self._extensions_left += MAX_EXTENSIONS
            yield self._entry(header, pax, long_name, long_link)

    def read(self, count: int) -> bytes:
        """See `Stream`; `TarError` where the archive ends inside the current entry's content."""
        wanted = min(count, self._left)
        data = self._stream.read(wanted)
        self._left -= len(data)
        self.position += len(data)
        if len(data) < wanted:
            raise _ends_early()
        return data

    def skip(self, count: int) -> int:
        """See `read`."""
        wanted = min(count, self._left)
        passed = self._stream.skip(wanted)
        self._left -= passed
        self.position += passed
        if passed < wanted:
            raise _ends_early()
        return passed

    def _next_header(self) -> bytes | None:
        """Return the next header block, or None at the end of the archive."""
        if waiting := self._left + self._padding:
            content, self._left, self._padding = self._left, 0, 0
            if self._stream.skip(waiting) < content:
                raise _ends_early()
        header = self._stream.read(BLOCK)
        if header == _ZEROS or not header:
            # Two blocks of zeros end an archive; writers that leave out one or both are common.
            return None
        if len(header) < BLOCK:
            raise _ends_early()
        stated = header[148:156]
        try:
            checksum = int(stated.partition(b"\0")[0], 8)
        except ValueError:
            raise TarError("a header has no checksum: the archive is damaged or not a tar archive") from None
        # The checksum is over the header with spaces in its own place.
        found = sum(header) - sum(stated) + 8 * 0x20
        # Some old writers added up signed bytes.
        if found != checksum and found - 256 * sum(byte > 127 for byte in header) != checksum:
            raise TarError("the checksum of a header is wrong: the archive is damaged or not a tar archive")
        return header

    def _entry(self, header: bytes, pax: dict[bytes, bytes], long_name: bytes | None, long_link: bytes | None) -> Entry:
        kind = _KINDS.get(header[156], FILE)
        size = _number(header, 124, 136)
        name = header[:100].partition(b"\0")[0]
        if long_name is not None:
            name = long_name
        elif header[257:263] == b"ustar\0" and header[345]:
            name = header[345:500].partition(b"\0")[0] + b"/" + name
        target = b""
        if kind in {LINK, HARD_LINK}:
            target = header[157:257].partition(b"\0")[0] if long_link is None else long_link
        modified: float = _number(header, 136, 148, signed=True)
        stored, sparse = size, False
        if pax:
            name = pax.get(b"GNU.sparse.name") or pax.get(b"path") or name
            target = pax.get(b"linkpath", target) if target or kind in {LINK, HARD_LINK} else target
            stored = size = _pax_number(pax.get(b"size"), size)
            real = pax.get(b"GNU.sparse.realsize") or pax.get(b"GNU.sparse.size")
            if real is not None or b"GNU.sparse.major" in pax:
                sparse, size = True, _pax_number(real, size)
            modified = _pax_time(pax.get(b"mtime"), modified)
        if header[156] == _SPARSE:
            sparse, size = True, _number(header, 483, 495)
            more = header[482]
            while more:
                block = self._stream.read(BLOCK)
                if len(block) < BLOCK:
                    raise _ends_early()
                more = block[504]
        if kind == FILE and name.endswith(b"/") and not header[156]:
            kind = DIRECTORY  # before POSIX, a directory was a file whose name ends so
        if kind != FILE:
            # As Go and docker: entries of these kinds have no content, whatever size they state.
            stored = size = 0
        self._begin(stored)
        return Entry(name, kind, size, modified, target, sparse)

    def _begin(self, size: int) -> None:
        self._left, self.position = size, 0
        self._padding = -size % BLOCK

    def _extension(self, size: int) -> bytes:
        self._begin(size)
        self._count_extension()
        if size > MAX_EXTENSION_BYTES:
            raise TarError(f"an extension header claims {size} bytes, at most {MAX_EXTENSION_BYTES} are understood")
        return self.read(size)

    def _parse_pax(self, data: bytes) -> dict[bytes, bytes]:
        """Return the records of a pax header that say something about names, sizes and times.

        Raises:
            TarError: a record does not have the form ``LENGTH KEY=VALUE``.
        """
        found = {}
        position = 0
        while position < len(data) and data[position]:
            space = data.find(b" ", position, position + 20)
            try:
                end = position + int(data[position:space]) if space > 0 else 0
            except ValueError:
                end = 0
            if end <= space + 1 or end > len(data) or data[end - 1] != 0x0A:
                raise TarError("a pax header is malformed: the archive is damaged")
            key, equals, value = data[space + 1 : end - 1].partition(b"=")
            if equals and key in _PAX_KEYS:
                found[key] = value
            position = end
            self._count_extension()
        return found

    def _count_extension(self) -> None:
        self._extensions_left -= 1
        if self._extensions_left < 0:
            raise TarError("has far more extension headers than entries: the archive is damaged or hostile")


def looks_like_tar(head: bytes) -> bool:
    """Tell whether bytes (at least 512) begin a tar archive; an empty one is all zeros."""
    if len(head) < BLOCK:
        return False
    if head[:BLOCK] == _ZEROS:
        return True
    try:
        checksum = int(head[148:156].partition(b"\0")[0], 8)
    except ValueError:
        return False
    return sum(head[:BLOCK]) - sum(head[148:156]) + 8 * 0x20 == checksum


def _number(header: bytes, start: int, end: int, *, signed: bool = False) -> int:
    """Read a numeric field: octal digits, or GNU's base-256 where the first bit is set.

    Raises:
        TarError: it is neither, or a size is negative or beyond 63 bits.
    """
    field = header[start:end]
    try:
        value = int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        if field[0] & 0x80:
            # The first bit only marks the form; the next is the sign.
            value = int.from_bytes(field, "big", signed=True)
            value = value if field[0] & 0x40 else value + (1 << (8 * (end - start) - 1))
        else:
            try:
                value = int(field.partition(b"\0")[0].strip() or b"0", 8)
            except ValueError:
                raise TarError("a number in a header is not octal: the archive is damaged") from None
    if not signed and value < 0:
        raise TarError("an entry states a negative size: the archive is damaged or hostile")
    if abs(value) >= 1 << 63:
        raise TarError("an entry states a size beyond 63 bits: the archive is damaged or hostile")
    return value


def _pax_number(text: bytes | None, otherwise: int) -> int:
    if not text:
        return otherwise
    if not text.isdigit() or len(text) > 18:
        raise TarError("an entry states a size that is none: the archive is damaged or hostile")
    return int(text)


def _pax_time(text: bytes | None, otherwise: float) -> float:
    try:
        seconds = float(text) if text and len(text) <= 64 else otherwise
    except ValueError:
        return otherwise
    return seconds if abs(seconds) < 1 << 63 else otherwise


def _ends_early() -> TarError:
    return TarError("ends in the middle of an entry: the archive was cut off")
