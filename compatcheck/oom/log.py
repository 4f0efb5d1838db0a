"""The text of a log, whatever wrote it and however long it is.

A log of a cluster has gigabytes, and what is asked of it stands in a few places: configurations and releases at its start, the
error at its end, messages of memory anywhere. So a long one is read in pieces, and of those without such a message only the
number of their lines is kept.
"""

from __future__ import annotations

import codecs
from collections import deque
from itertools import chain
from typing import IO, TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT, open_file, open_standard_input
from compatcheck.core.units import MIB, format_bytes
from compatcheck.oom.message import has_message
from compatcheck.oom.needles import Sieve, find_needles, find_speech, has_needle

if TYPE_CHECKING:
    from collections.abc import Iterator

EDGE = 2 * MIB
"""Bytes at the start and at the end of a log that are kept whatever they hold; a log of twice as many is kept whole."""
MOST = 8 * MIB
"""Bytes kept between them: what stands around a message that says more than those before is some 400 KiB."""
PRICE = 4096
"""Bytes of those for every needle: a part with a message on each line is few bytes and much to read."""
DENSE = 256
"""Needles of a part above which it is kept unread: to tell whether one of them is a message costs what reading it does."""
LINES = 1 << 20
"""Lines left out that are counted, each an empty one of what is kept."""
PIECE = 128 * 1024
"""Bytes looked at together: about a thousand lines, and at least as many are kept before and behind a message."""
_OVERLAP = 4096
"""Bytes of the piece before in which a message may begin."""
_LONGEST_LINE = 65536


class LogText(NamedTuple):
    """What is kept of a log."""

    text: str
    """The log; for every line that was left out an empty one."""
    skipped: tuple[Skipped, ...] = ()
    """Messages that were left out."""


class _Piece:
    """A piece of a log that is not decided yet."""

    __slots__ = ("data", "speaks", "wanted")

    def __init__(self, data: bytes, *, wanted: bool) -> None:
        self.data = data
        self.speaks = False
        self.wanted = wanted


def read_log(path: str) -> LogText:
    """Read a log from a file or from standard input.

    Raises:
        InputError: there is none, it is no regular file, or it is binary.
    """
    if path == STANDARD_INPUT:
        return _read(open_standard_input(), path)
    with open_file(path) as file:
        return _read(file, path)


def decode_log(data: bytes) -> str:
    """Decode a log: what is not UTF-8 in it (2.3's index of the device is a bare byte) is replaced.

    Raises:
        InputError: it is binary.
    """
    if data.count(b"\x00") * 10 > len(data):
        if data[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            return data.decode("utf-16", errors="replace")
        raise InputError("is not a text", source=Source("LOG"), hint="name the log that holds the message")
    return data.decode("utf-8-sig", errors="replace")


def _read(file: IO[bytes], path: str) -> LogText:
    try:
        head = file.read(2 * EDGE)
        text = decode_log(head)
        if len(head) < 2 * EDGE:
            return LogText(text)
        del text
        return _condense(_cut(head, file), path)
    except OSError as error:
        message = f"could not be read: {error.strerror}"
        raise InputError(message, source=Source(path), hint="name a copy of the log") from None


def _cut(head: bytes, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a log in UTF-8, whole lines where they are not too long."""
    wide = head[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
    decoder = codecs.getincrementaldecoder("utf-16")("replace") if wide else None
    rest = b""
    for block in chain([head], iter(lambda: file.read(PIECE), b"")):
        data = rest + (block if decoder is None else decoder.decode(block).encode("utf-8", "replace"))
        begin = 0
        while len(data) - begin > PIECE + _LONGEST_LINE:
            end = data.find(b"\n", begin + PIECE, begin + PIECE + _LONGEST_LINE) + 1 or begin + PIECE
            yield data[begin:end]
            begin = end
        rest = data[begin:]
    yield rest


def _condense(pieces: Iterator[bytes], path: str) -> LogText:
    """Keep the start, the end, and what stands around messages about memory."""
    kept: list[bytes] = []
    recent: deque[_Piece] = deque()
    position, pending, following, room, left_out, lines = 0, 0, 0, MOST, 0, 0
    before, spoken, sieve = b"", False, Sieve()

    def decide() -> int:
        """Keep the oldest piece or its lines' number; return whether a message was left out."""
        piece = recent.popleft()
        nonlocal lines
        breaks = 0 if piece.wanted else _count_breaks(piece.data)
        kept.append(piece.data if piece.wanted else b"\n" * min(breaks, max(0, LINES - lines)))
        lines += breaks
        return piece.speaks and not piece.wanted

    for data in pieces:
        piece = _Piece(data, wanted=position < EDGE)
        recent.append(piece)
        position += len(data)
        pending += len(data)
        overlapping = before[-_OVERLAP:] + data
        before = data
        lowered = overlapping.lower()
        rows, speech = sieve.select(lowered)
        folded = lowered.decode("latin-1")
        around = []
        needles = len(find_needles(folded, rows)) if room > 0 else int(has_needle(folded, rows))
        piece.speaks = needles > 0 and (
            room <= 0 or needles > DENSE or has_message(overlapping.decode("utf-8", "replace"))
        )
        if piece.speaks:
            around = list(recent)[-3:]
            following = 1
        elif following:
            around, following = [piece], 0
        elif not spoken and find_speech(folded, speech) is not None:
            around = [piece]
        spoken = spoken or bool(around)
        for one in around:
            if not one.wanted and room > 0:
                one.wanted = True
                room -= len(one.data)
        room -= PRICE * needles if piece.speaks else 0
        while pending - len(recent[0].data) >= EDGE:
            pending -= len(recent[0].data)
            left_out += decide()
    kept.extend(piece.data for piece in recent)
    text = b"".join(kept).decode("utf-8-sig", errors="replace")
    skipped = []
    if left_out:
        reason = (
            f"{left_out} parts of {format_bytes(PIECE)} speak of memory and were not read: of what stands between the first "
            f"and the last {format_bytes(EDGE)}, {format_bytes(MOST)} are, counting {format_bytes(PRICE)} a message"
        )
        skipped.append(Skipped(Source(path), reason, "give the part of the log that you mean", named=True))
    if lines > LINES:
        reason = f"{lines} lines were left out, of which {LINES} are counted: the numbers of later lines are too small"
        skipped.append(Skipped(Source(path), reason, "give a part of the log where you want its lines"))
    return LogText(text, tuple(skipped))


def _count_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
