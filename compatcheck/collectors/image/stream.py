"""Bytes that are only read forward: part of a file, a pipe, or what a decompressor gives, each able to pass over bytes.

Passing over is what an image is mostly read for, so it costs a file nothing and a pipe no memory.
"""

from __future__ import annotations

import os
from typing import Protocol

from compatcheck.core.units import KIB, MIB

_WINDOW = 16 * KIB
"""Read ahead in a file: many small files lie within it, and a large one wastes no more than this."""
_CHUNK = 64 * KIB
_DISCARD = 256 * KIB


class Stream(Protocol):
    """Bytes from first to last."""

    position: int
    """Bytes read or passed over so far."""

    def read(self, count: int) -> bytes:
        """Return the next bytes; fewer only where the stream ends."""

    def skip(self, count: int) -> int:
        """Pass over bytes and return how many there were."""


class FileStream:
    """Part of a regular file, which is read where it is needed and nowhere else."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._window = b""
        self._window_start = 0
        self.position = 0

    def read(self, count: int) -> bytes:
        """See `Stream`."""
        begin = self.position - self._window_start
        end = begin + count
        if begin >= 0 and end <= len(self._window):
            self.position += count
            return self._window[begin:end]
        available = max(0, min(count, self._size - self.position))
        wanted = max(available, min(_WINDOW, self._size - self.position))
        data = b""
        while len(data) < available:
            # A file that shrinks meanwhile ends early.
            part = os.pread(self._descriptor, wanted - len(data), self._start + self.position + len(data))
            if not part:
                break
            data = data + part if data else part
        if len(data) <= _WINDOW:
            self._window, self._window_start = data, self.position
        taken = data[:available]
        self.position += len(taken)
        return taken

    def skip(self, count: int) -> int:
        """See `Stream`."""
        passed = max(0, min(count, self._size - self.position))
        self.position += passed
        return passed


class PipeStream:
    """A pipe, or anything else that cannot be read twice."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._scratch: memoryview | None = None
        self.position = 0

    def read(self, count: int) -> bytes:
        """See `Stream`."""
        parts = []
        while count > 0:
            part = os.read(self._descriptor, min(count, MIB))
            if not part:
                break
            parts.append(part)
            count -= len(part)
            self.position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, count: int) -> int:
        """See `Stream`."""
        if self._scratch is None:
            self._scratch = memoryview(bytearray(_DISCARD))
        passed = 0
        while passed < count:
            read = os.readv(self._descriptor, [self._scratch[: min(count - passed, _DISCARD)]])
            if not read:
                break
            passed += read
        self.position += passed
        return passed


class Peeked:
    """A stream whose first bytes have been looked at and are given once more."""

    def __init__(self, stream: Stream, count: int) -> None:
        self._stream = stream
        self.head = stream.read(count)
        """The first bytes."""
        self.position = 0

    def read(self, count: int) -> bytes:
        """See `Stream`."""
        data = b""
        if self.position < len(self.head):
            data = self.head[self.position : self.position + count]
        if len(data) < count:
            data += self._stream.read(count - len(data))
        self.position += len(data)
        return data

    def skip(self, count: int) -> int:
        """See `Stream`."""
        passed = min(count, max(0, len(self.head) - self.position))
        if passed < count:
            passed += self._stream.skip(count - passed)
        self.position += passed
        return passed


def peek(stream: Stream, count: int) -> tuple[bytes, Stream]:
    """Return the first bytes of a stream and a stream that gives them once more."""
    if isinstance(stream, FileStream):
        head = stream.read(count)
        stream.position = 0
        return head, stream
    peeked = Peeked(stream, count)
    return peeked.head, peeked


class Hashed:
    """A stream whose every byte goes through a hash, those passed over too."""

    def __init__(self, stream: Stream, algorithm: str) -> None:
        import hashlib  # noqa: PLC0415 (not where nothing is to be verified)

        self._stream = stream
        self._hash = hashlib.new(algorithm, usedforsecurity=False)
        self.position = 0

    def read(self, count: int) -> bytes:
        """See `Stream`."""
        data = self._stream.read(count)
        self._hash.update(data)
        self.position += len(data)
        return data

    def skip(self, count: int) -> int:
        """See `Stream`."""
        passed = 0
        while passed < count:
            data = self.read(min(count - passed, _CHUNK))
            if not data:
                break
            passed += len(data)
        return passed

    def finish(self) -> str:
        """Read to the end and return the digest in hexadecimal."""
        while self.read(_CHUNK):
            pass
        return self._hash.hexdigest()
