"""Compressed layers, read forward with bounded memory and a bound on how far they may expand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.image.layers import LimitError
from compatcheck.collectors.image.tar import TarError
from compatcheck.core.units import GIB, KIB, format_bytes

if TYPE_CHECKING:
    from compatcheck.collectors.image.stream import Stream

GZIP, ZSTD, NONE = "gzip", "zstd", "none"
MAX_RATIO = 100
"""Times its own size that compressed data may expand to, beyond `FREE_BYTES` (layers of real images: 2 to 8 times)."""
FREE_BYTES = GIB
"""Expanded bytes of one input that no ratio is asked of."""
MAX_ZSTD_WINDOW = 27
"""Logarithm of the largest window, the default of the zstd tool: 128 MiB of memory."""

_INPUT = 32 * KIB
_OUTPUT = 256 * KIB
_OTHER = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"PK\x03\x04": "zip"}


class UnavailableError(ValueError):
    """The packages installed here cannot read this compression."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        """Keep the remedy, where a package is one."""
        super().__init__(message)
        self.hint = hint


class Expansion:
    """How far the compressed data of one input has expanded, over all its layers."""

    def __init__(self) -> None:
        self.consumed = 0
        self.produced = 0

    def add(self, consumed: int, produced: int) -> None:
        """Count bytes read and given; `LimitError` where they expand too far."""
        self.consumed += consumed
        self.produced += produced
        if self.produced > FREE_BYTES + MAX_RATIO * self.consumed:
            raise LimitError(
                f"expands to more than {format_bytes(FREE_BYTES)} and {MAX_RATIO} times its compressed size, "
                "as a decompression bomb does (or a very large empty file); the rest was not read"
            )


def recognise_compression(head: bytes) -> str:
    """Return how data is compressed by its first bytes; `NONE` when they are no magic number that is known."""
    if head.startswith(b"\x1f\x8b"):
        return GZIP
    # RFC 8878, with the skippable frames that zstd:chunked may put first.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
        return ZSTD
    return next((name for magic, name in _OTHER.items() if head.startswith(magic)), NONE)


def decompress(stream: Stream, compression: str, expansion: Expansion) -> Stream:
    """Return what compressed data expands to.

    Raises:
        UnavailableError: nothing here can decompress it.
    """
    if compression == GZIP:
        return _Gzip(stream, expansion)
    if compression == ZSTD:
        return _open_zstd(stream, expansion)
    raise UnavailableError(f"is compressed with {compression}, which images are not")


class _Decoded:
    """A stream over chunks that a decompressor gives."""

    def __init__(self, source: Stream, expansion: Expansion) -> None:
        self._source = source
        self._expansion = expansion
        self._chunk = b""
        self._offset = 0
        self._counted = source.position
        self.position = 0

    def read(self, count: int) -> bytes:
        """See `compatcheck.collectors.image.stream.Stream`."""
        end = self._offset + count
        if end <= len(self._chunk):
            data = self._chunk[self._offset : end]
            self._offset = end
            self.position += count
            return data
        parts = []
        while count > 0:
            if self._offset >= len(self._chunk) and not self._advance():
                break
            part = self._chunk[self._offset : self._offset + count]
            parts.append(part)
            self._offset += len(part)
            count -= len(part)
            self.position += len(part)
        return b"".join(parts)

    def skip(self, count: int) -> int:
        """See `compatcheck.collectors.image.stream.Stream`."""
        left = count
        while left > 0:
            if self._offset >= len(self._chunk) and not self._advance():
                break
            passed = min(left, len(self._chunk) - self._offset)
            self._offset += passed
            left -= passed
        self.position += count - left
        return count - left

    def _advance(self) -> bool:
        """Make the next chunk the current one; False at the end."""
        self._chunk = self._next()
        self._offset = 0
        self._expansion.add(self._source.position - self._counted, len(self._chunk))
        self._counted = self._source.position
        return bool(self._chunk)

    def _next(self) -> bytes:
        """Return the next chunk, empty at the end.

        Raises:
            TarError: the data is damaged or ends early.
        """
        raise NotImplementedError


class _Gzip(_Decoded):
    """Members one after the other, as pigz and eStargz write them; zeros and foreign bytes after the last are left."""

    def __init__(self, source: Stream, expansion: Expansion) -> None:
        import zlib  # noqa: PLC0415 (compressed layers only)

        super().__init__(source, expansion)
        self._zlib = zlib
        self._member: Any = None
        self._waiting = b""
        self._first = True

    def _next(self) -> bytes:
        while True:
            if not self._waiting:
                self._waiting = self._source.read(_INPUT)
            if self._member is None:
                if len(self._waiting) < 2:
                    self._waiting += self._source.read(_INPUT)
                if not self._waiting.startswith(b"\x1f\x8b") and not self._first:
                    return b""
                self._member = self._zlib.decompressobj(wbits=31)
                self._first = False
            if not self._waiting:
                raise TarError("its gzip data ends early: it was cut off")
            try:
                chunk: bytes = self._member.decompress(self._waiting, _OUTPUT)
            except self._zlib.error as error:
                raise TarError(f"its gzip data is damaged: {error}") from None
            if self._member.eof:
                self._waiting = self._member.unused_data
                self._member = None
            else:
                self._waiting = self._member.unconsumed_tail
            if chunk:
                return chunk


class _Zstd(_Decoded):
    """Frames one after the other, with the decompressor of Python 3.14 or its backport."""

    def __init__(self, source: Stream, expansion: Expansion, module: Any) -> None:  # noqa: ANN401 (one of two modules)
        super().__init__(source, expansion)
        self._error: type[Exception] = module.ZstdError
        options = {module.DecompressionParameter.window_log_max: MAX_ZSTD_WINDOW}
        self._make = partial(module.ZstdDecompressor, options=options)
        self._frame: Any = None
        self._waiting = b""

    def _next(self) -> bytes:
        while True:
            if not self._waiting and (self._frame is None or self._frame.needs_input):
                self._waiting = self._source.read(_INPUT)
                if not self._waiting:
                    if self._frame is not None:
                        raise TarError("its zstd data ends early: it was cut off")
                    return b""
            if self._frame is None:
                self._frame = self._make()
            try:
                chunk: bytes = self._frame.decompress(self._waiting, max_length=_OUTPUT)
            except self._error as error:
                raise TarError(f"its zstd data is damaged: {error}") from None
            self._waiting = b""
            if self._frame.eof:
                self._waiting = self._frame.unused_data
                self._frame = None
            if chunk:
                return chunk


def _open_zstd(stream: Stream, expansion: Expansion) -> Stream:
    from importlib import import_module  # noqa: PLC0415 (compressed layers only)

    for name in ("compression.zstd", "backports.zstd"):
        try:
            return _Zstd(stream, expansion, import_module(name))
        except ImportError:
            continue
    from compatcheck.core.installation import tell_remedy  # noqa: PLC0415 (only where it is missing)

    what = "is compressed with zstd, which this Python cannot read without another package"
    raise UnavailableError(what, tell_remedy("backports.zstd"))
