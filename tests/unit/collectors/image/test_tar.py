import io
import os
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.collectors.image.stream import FileStream
from compatcheck.collectors.image.tar import MAX_EXTENSION_BYTES, TarError, TarReader, looks_like_tar
from tests.unit.collectors.image.archives import Device, Same, To, tar

BLOCK = 512


class Bytes:
    """A stream over bytes in memory that counts what is read of it."""

    def __init__(self, data):
        self._file = io.BytesIO(data)
        self.position = 0
        self.longest = 0

    def read(self, count):
        data = self._file.read(count)
        self.position += len(data)
        self.longest = max(self.longest, len(data))
        return data

    def skip(self, count):
        before = self.position
        self.position = min(before + count, len(self._file.getbuffer()))
        self._file.seek(self.position)
        return self.position - before


def read(data):
    reader = TarReader(Bytes(data))
    return [(entry, reader.read(entry.size) if entry.kind == "file" and not entry.sparse else b"") for entry in reader]


def names(data):
    return [entry.name.decode() for entry, _ in read(data)]


def header(name=b"a", size=b"00000000000", kind=b"0", **more):
    """Return a header block with a right checksum."""
    fields = bytearray(BLOCK)
    fields[: len(name)] = name
    fields[100:108] = b"0000644\0"
    fields[124 : 124 + len(size)] = size
    fields[136:148] = b"00000000000\0"
    fields[156:157] = kind
    fields[257:265] = more.pop("magic", b"ustar\x0000")
    for start, value in more.pop("at", {}).items():
        fields[start : start + len(value)] = value
    fields[148:156] = b" " * 8
    fields[148:156] = b"%06o\0 " % sum(fields)
    return bytes(fields)


def record(text):
    length = len(text) + 2
    while len(b"%d %s\n" % (length, text)) != length:
        length += 1
    return b"%d %s\n" % (length, text)


def pax(text):
    return header(b"pax", b"%011o" % len(text), b"x") + text + bytes(-len(text) % BLOCK)


NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60),
    min_size=1,
    max_size=8,
).map("/".join)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(NAMES, st.one_of(st.binary(max_size=1200), NAMES.map(To), NAMES.map(Same), st.just(Device()))),
        max_size=6,
    ),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_entries_are_those_tarfile_writes(files, form):
    data = tar(files, form=form)
    kinds = {tarfile.REGTYPE: "file", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link", tarfile.CHRTYPE: "other"}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        expected = [
            (
                one.name,
                kinds[one.type],
                one.size if one.isreg() else 0,
                one.linkname,
                archive.extractfile(one).read() if one.isreg() else b"",
            )
            for one in archive.getmembers()
        ]
    found = [
        (entry.name.decode().rstrip("/"), entry.kind, entry.size, entry.target.decode(), content)
        for entry, content in read(data)
    ]
    assert found == [(name.rstrip("/"), *rest) for name, *rest in expected]


def test_a_long_name_of_ustar_is_put_together():
    long = "a" * 90 + "/" + "b" * 90
    assert names(tar({long: "x"}, form=tarfile.USTAR_FORMAT)) == [long]


def test_what_precedes_posix_is_read():
    old = header(b"bin/", kind=b"\0", magic=bytes(8)) + header(b"bin/a", b"2          ", b"\0", magic=bytes(8)) + b"hi"
    assert [(entry.name, entry.kind, content) for entry, content in read(old + bytes(510))] == [
        (b"bin/", "directory", b""),
        (b"bin/a", "file", b"hi"),
    ]


def test_sizes_beyond_eight_gigabytes_are_read():
    binary = b"\x80" + (9 * 2**30).to_bytes(11, "big")
    reader = iter(TarReader(Bytes(header(b"large", binary))))
    assert next(reader).size == 9 * 2**30
    stated = pax(record(b"size=10000000000"))
    assert next(iter(TarReader(Bytes(stated + header(b"large"))))).size == 10_000_000_000


def test_a_global_header_holds_until_it_is_overridden():
    text = b"16 path=common\n"
    common = header(b"pax", b"%011o" % (len(text) + 1), b"g") + b"16 path=commons\n" + bytes(BLOCK - 16)
    assert names(common + header(b"a") + pax(b"12 path=own\n") + header(b"b") + header(b"c")) == [
        "commons",
        "own",
        "commons",
    ]


def test_devices_and_links_have_no_content_whatever_they_state():
    for kind in b"1", b"2", b"3", b"4", b"5", b"6":
        assert names(header(b"a", b"00000001000", kind) + header(b"b")) == ["a", "b"]


def test_sparse_files_are_known_by_their_real_size_and_passed_over():
    map_ = header(b"sparse", b"00000000005", b"S", magic=b"ustar  \0", at={482: b"\1", 483: b"00000100000\0"})
    more = bytearray(BLOCK)
    more[504] = 1
    data = map_ + bytes(more) + bytes(BLOCK) + b"abcde" + bytes(507) + header(b"next")
    (first, _), (second, _) = read(data)
    assert (first.size, first.sparse, second.name) == (0o100000, True, b"next")
    text = record(b"GNU.sparse.major=1") + record(b"GNU.sparse.name=real.name") + record(b"GNU.sparse.realsize=1000000")
    (first, _), (second, _) = read(
        pax(text) + header(b"GNUSparseFile/x", b"00000001000") + bytes(512) + header(b"next")
    )
    assert (first.name, first.size, first.sparse, second.name) == (b"real.name", 1_000_000, True, b"next")


@pytest.mark.parametrize("end", [b"", bytes(BLOCK), bytes(2 * BLOCK), bytes(3 * BLOCK) + b"what follows the end"])
def test_an_archive_may_end_with_or_without_blocks_of_zeros(end):
    assert names(header(b"a") + end) == ["a"]


def test_the_padding_of_the_last_entry_may_be_missing():
    assert read(header(b"a", b"00000000003") + b"abc")[0][1] == b"abc"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header()[:300], "in the middle of an entry"),
        (header(size=b"00000001000") + b"too little", "in the middle of an entry"),
        (header() + b"garbage" * 100, "no checksum|checksum of a header is wrong"),
        (header(size=b"\xff" * 12), "negative size"),
        (header(size=b"\x80" + b"\xff" * 11), "beyond 63 bits"),
        (header(size=b"9999999999\0"), "not octal"),
        (pax(b"18 size=-100000000\n") + header(), "malformed"),
        (pax(b"18 size=-10000000\n") + header(), "states a size that is none"),
        (pax(b"99 path=a\n") + header(), "malformed"),
        (pax(b"0 path=a\n") + header(), "malformed"),
        (pax(b"path=a\n") + header(), "malformed"),
        (pax(b"-5 path=a\n") + header(), "malformed"),
        (header(b"././@LongLink", b"%011o" % (MAX_EXTENSION_BYTES + 1), b"L"), "extension header claims"),
        (header(b"pax", b"77777777777", b"x"), "extension header claims"),
    ],
)
def test_damage_ends_the_reading_and_is_said(data, reason):
    stream = Bytes(header(b"before") + data)
    found = []
    with pytest.raises(TarError, match=reason):
        found.extend(entry.name for entry in TarReader(stream))
    assert found[0] == b"before"
    assert stream.longest <= BLOCK


def test_a_million_extension_headers_take_no_recursion_and_no_memory():
    class Endless(Bytes):
        def __init__(self):
            super().__init__(b"")
            self.left = 20_000
            self.pair = pax(b"10 path=a\n")

        def read(self, count):
            self.position += count
            self.left -= 1
            if self.left < 0:
                return b""
            return self.pair[:BLOCK] if count == BLOCK else self.pair[BLOCK : BLOCK + count]

        def skip(self, count):
            return count

    assert list(TarReader(Endless())) == []


def test_signed_checksums_of_old_writers_are_accepted():
    data = bytearray(header(b"caf\xe9"))
    stated = int(data[148:154], 8)
    data[148:154] = b"%06o" % (stated - 256)
    assert [entry.name for entry in TarReader(Bytes(bytes(data)))] == [b"caf\xe9"]


def test_the_first_bytes_tell_a_tar():
    assert looks_like_tar(tar({"a": "x"}))
    assert looks_like_tar(bytes(1024))
    assert not looks_like_tar(b"{" + bytes(600))
    assert not looks_like_tar(b"")


def test_a_file_is_read_where_it_is_needed(tmp_path):
    path = tmp_path / "large.tar"
    with path.open("wb") as file:
        file.write(header(b"huge", b"77777777777"))
        file.seek(BLOCK + 8 * 2**30)  # a hole: nothing is written here
        file.write(header(b"last") + bytes(1024))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        stream = FileStream(descriptor, 0, path.stat().st_size)
        assert [entry.name for entry in TarReader(stream)] == [b"huge", b"last"]
    finally:
        os.close(descriptor)
