import gzip
import io
import os
import zlib

import pytest

from compatcheck.collectors.image import compression
from compatcheck.collectors.image.compression import (
    GZIP,
    NONE,
    ZSTD,
    Expansion,
    UnavailableError,
    decompress,
    recognise_compression,
)
from compatcheck.collectors.image.layers import LimitError
from compatcheck.collectors.image.tar import TarError
from tests.unit.collectors.image.archives import zstd_frame

DATA = os.urandom(300_000) + bytes(2_000_000) + b"end"
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00meta"
WIDE = b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00"
"""A frame that asks for a window of 2 GiB."""
MODULES = ("compression.zstd", "backports.zstd")


class Source:
    def __init__(self, data):
        self._file = io.BytesIO(data)
        self.position = 0

    def read(self, count=-1):
        data = self._file.read(count)
        self.position += len(data)
        return data

    def skip(self, count):
        return len(self.read(count))


def expand(data, kind):
    stream = decompress(Source(data), kind, Expansion())
    out = []
    while part := stream.read(70_001):
        out.append(part)
    return b"".join(out)


@pytest.fixture(params=MODULES)
def zstd_module(request, monkeypatch):
    pytest.importorskip(request.param)
    for name in MODULES:
        if name != request.param:
            monkeypatch.setitem(__import__("sys").modules, name, None)
    return request.param


def test_gzip_members_follow_each_other_as_in_an_estargz():
    members = b"".join(gzip.compress(DATA[start : start + 100_000]) for start in range(0, len(DATA), 100_000))
    for data in (
        gzip.compress(DATA),
        members,
        members + bytes(700),
        members + b"foreign",
        gzip.compress(b"") + members,
    ):
        assert expand(data, GZIP) == DATA


def test_bytes_are_passed_over_as_they_are_read():
    stream = decompress(Source(gzip.compress(DATA)), GZIP, Expansion())
    assert stream.skip(100_000) == 100_000
    assert stream.read(1000) == DATA[100_000:101_000]
    assert stream.skip(10) == 10
    assert stream.position == 101_010
    assert stream.read(2_000_000) == DATA[101_010:2_101_010]
    assert stream.skip(10**9) == len(DATA) - 2_101_010
    assert stream.read(1) == b""


@pytest.mark.parametrize("cut", [1, 2, 5, 10, 1000, -1, -8])
def test_gzip_that_was_cut_off_is_said(cut):
    with pytest.raises(TarError, match=r"ends early|damaged"):
        expand(gzip.compress(DATA)[:cut], GZIP)


def test_damaged_gzip_is_said():
    data = bytearray(gzip.compress(DATA))
    data[-6] ^= 1
    with pytest.raises(TarError, match="damaged"):
        expand(bytes(data), GZIP)
    with pytest.raises(TarError, match="damaged"):
        expand(b"\x1f\x8b" + b"x" * 100, GZIP)


def test_an_expansion_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(compression, "FREE_BYTES", 1_000_000)
    with pytest.raises(LimitError, match="decompression bomb"):
        expand(gzip.compress(bytes(20_000_000)), GZIP)
    assert len(expand(gzip.compress(os.urandom(1000) * 500, 1), GZIP)) == 500_000
    # Data that is merely well compressed is no bomb.
    text = b"".join(b"%d\n" % number for number in range(2_000_000))
    assert expand(gzip.compress(text, 9), GZIP) == text


def test_compressors_are_known_by_their_first_bytes():
    assert recognise_compression(gzip.compress(b"")) == GZIP
    assert recognise_compression(zstd_frame(b"")) == recognise_compression(SKIPPABLE) == ZSTD
    assert recognise_compression(b"") == recognise_compression(bytes(512)) == recognise_compression(b"{}") == NONE
    assert recognise_compression(b"\xfd7zXZ\0") == "xz"
    with pytest.raises(UnavailableError, match="compressed with xz"):
        decompress(Source(b""), "xz", Expansion())


@pytest.mark.usefixtures("zstd_module")
def test_zstd_frames_follow_each_other_with_others_between():
    parts = zstd_frame(DATA[:500_000]) + SKIPPABLE + zstd_frame(b"") + zstd_frame(DATA[500_000:])
    for data in (zstd_frame(DATA), parts, SKIPPABLE + parts, parts + SKIPPABLE):
        assert expand(data, ZSTD) == DATA


@pytest.mark.usefixtures("zstd_module")
def test_damaged_zstd_is_said():
    data = zstd_frame(DATA)
    with pytest.raises(TarError, match="damaged"):
        expand(data[:100_000] + b"\xff" * 100_000, ZSTD)
    with pytest.raises(TarError, match=r"damaged|ends early"):
        expand(data[:6] + b"\x07\x00\x00" + data[9:], ZSTD)


@pytest.mark.usefixtures("zstd_module")
def test_zstd_that_asks_for_too_much_memory_is_refused():
    with pytest.raises(TarError, match="damaged"):
        expand(WIDE + bytes(100), ZSTD)


@pytest.mark.usefixtures("zstd_module")
def test_zstd_that_was_cut_off_ends_the_archive():
    data = zstd_frame(DATA)[:100_000]
    try:
        assert len(expand(data, ZSTD)) < len(DATA)  # zstandard says nothing; the archive in it is then cut off
    except TarError as error:
        assert "ends early" in str(error)


def test_a_wrong_window_size_of_zlib_is_no_crash():
    with pytest.raises(TarError):
        expand(b"\x1f\x8b" + zlib.compress(DATA)[:50], GZIP)
