"""Layers that were read before, by what cannot be claimed falsely: a digest that was verified, or a file that is unchanged.

An archive says which digests its layers have, and may lie; what was read of a layer must never stand for another one.
A compressed layer costs far more to expand than to hash, so its digest is verified while it is read, and its record is kept
under that digest: it is found again in every archive and layout that holds the layer, whose bytes are hashed again there, so
that no archive can state the digest of a layer that it does not hold. A plain layer in a file is read by its
headers alone (0.2 s of CPU for each 10,000 entries, whatever its size), less than hashing it would take (0.6 s for each GB,
with the processor's help): its record is kept under the identity of the file it lies in (device, inode, size, and the times
of its last changes, of which no program can set the second) and the place in it; a compressed one's under both.
"""

from __future__ import annotations

import os
import stat
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.image.layers import Kept, LayerRecord
from compatcheck.core.cache import find_cache
from compatcheck.core.files import open_at_once
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 256 * MIB
"""Size of the whole cache on disk; the records that were used longest ago go first (a layer takes some 100 kB)."""
MAX_RECORD_BYTES = 192 * MIB
"""Largest record that is expanded again."""
FORMAT = 3
"""Number of the form of records and of what is of interest: one more whenever either changes."""

_SETTLED_SECONDS = 2.0
"""A file that was changed less than this ago may change again without its times showing it."""


def layers_directory(environ: Mapping[str, str]) -> str:
    """Return where records are kept: ``layers`` in the cache."""
    return os.path.join(find_cache(environ), "layers")


def identify_file(descriptor: int) -> str | None:
    """Return what tells an open regular file from every other and from itself after a change, or None when nothing does."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    if time.time() - max(status.st_mtime, status.st_ctime) < _SETTLED_SECONDS:
        return None
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return "-".join(map(str, numbers))


class LayerCache:
    """Records of layers in a directory; whatever goes wrong with it only costs time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._wrote = False

    def find(self, key: str) -> LayerRecord | None:
        """Return the record under a key; None when there is none or it is damaged."""
        path = self._path(key)
        try:
            with open(path, "rb", opener=open_at_once) as file:
                data = file.read(MAX_BYTES + 1)
            record = decode(data)
        except (OSError, ValueError, TypeError, KeyError, IndexError, RecursionError, MemoryError):
            return None
        with suppress(OSError):
            os.utime(path)
        return record

    def store(self, key: str, record: LayerRecord) -> None:
        """Keep a record that was read without problems."""
        import tempfile  # noqa: PLC0415 (not where everything is found)

        if record.problems:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".new")
            try:
                with open(descriptor, "wb") as file:
                    file.write(encode(record))
                os.replace(temporary, self._path(key))
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError:
            return
        self._wrote = True

    def prune(self) -> None:
        """Delete the records used longest ago where the cache has grown too large; only after something was written."""
        if not self._wrote:
            return
        found = []
        try:
            for entry in os.scandir(self._folder):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, entry.path))
        except OSError:
            return
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= MAX_BYTES:
                return
            try:
                os.unlink(path)
            except OSError:
                continue
            total -= size

    def _path(self, key: str) -> str:
        from hashlib import sha256  # noqa: PLC0415 (on the way only where a cache is used)

        from compatcheck import __version__  # noqa: PLC0415 (see above)

        name = sha256(f"{FORMAT} {__version__} {key}".encode()).hexdigest()
        return os.path.join(self._folder, name)


def encode(record: LayerRecord) -> bytes:
    """Return a record as zlib over JSON, contents and hashes in base64."""
    import json  # noqa: PLC0415 (see above)
    import zlib  # noqa: PLC0415 (see above)

    rows = [kept._replace(content=_write(kept.content)) for kept in record.kept]
    hashes = [_write(record.hidden), _write(record.hidden_by_directories)]
    text = json.dumps([rows, record.removed, record.opaque, hashes, record.entries])
    return zlib.compress(text.encode(), 1)


def decode(data: bytes) -> LayerRecord:
    """Return the record that bytes of `encode` hold.

    Raises:
        ValueError, TypeError, IndexError: they are damaged.
    """
    import json  # noqa: PLC0415 (see above)
    import zlib  # noqa: PLC0415 (see above)

    expander = zlib.decompressobj()
    try:
        data = expander.decompress(data, MAX_RECORD_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not expander.eof:
        raise ValueError("the record is cut off or too large")
    rows, removed, opaque, (hidden, by_directories), entries = json.loads(data)
    kept = [Kept(*row) for row in rows]
    texts = (*removed, *opaque, *(text for one in kept for text in (one.path, one.kind, one.target)))
    numbers = (entries, *(number for one in kept for number in (one.size_bytes or 0, one.modified)))
    if not all(isinstance(number, (int, float)) for number in numbers) or not isinstance(entries, int):
        raise TypeError("a number is none")
    "\0".join(texts).encode("utf-8", "surrogateescape")
    return LayerRecord(
        tuple(one._replace(content=_read(one.content)) for one in kept),
        tuple(removed),
        tuple(opaque),
        _read(hidden) or b"",
        _read(by_directories) or b"",
        entries,
    )


def _write(data: bytes | None) -> Any:  # noqa: ANN401 (text in place of bytes, while a record is JSON)
    return None if data is None else b64encode(data).decode()


def _read(text: Any) -> bytes | None:  # noqa: ANN401 (see `_write`)
    return None if text is None else b64decode(text, validate=True)
