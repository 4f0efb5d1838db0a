"""The text of a log, whatever wrote it."""

from __future__ import annotations

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source


def decode_log(data: bytes) -> str:
    """Decode a log: what is not UTF-8 in it (2.3's index of the device is a bare byte) is replaced.

    Raises:
        InputError: it is binary.
    """
    if data.count(b"\x00") * 10 > len(data):
        if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            return data.decode("utf-16", errors="replace")
        raise InputError("is not a text", source=Source("LOG"), hint="name the log that holds the message")
    return data.decode("utf-8-sig", errors="replace")
