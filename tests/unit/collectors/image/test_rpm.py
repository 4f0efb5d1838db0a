import contextlib
import gzip
import sqlite3
import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.collectors.image.rpm import RpmError, read_header, read_rpm_packages
from compatcheck.collectors.image.system_packages import read_system
from tests import ROOT
from tests.unit.collectors.image.trees import make_image

FIXTURES = ROOT / "fixtures" / "images" / "rpm"
EXPECTED = {
    ("bash", "5.2"),
    ("cuda-cudart-12-4", "12.4.127"),
    ("libcudnn9-cuda-12", "9.1.0.70"),
    ("libnccl", "2.21.5"),
}
needs_deserialize = pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 opens no bytes before 3.11")


def fixture(name):
    return gzip.decompress((FIXTURES / f"{name}.gz").read_bytes())


def header(name, version):
    store = f"{name}\0{version}\0".encode()
    entries = struct.pack(">8I", 1000, 6, 0, 1, 1001, 6, len(name) + 1, 1)
    return struct.pack(">II", 2, len(store)) + entries + store


def make_ndb(headers, *, owner=0):
    """Lay headers out as ``rpmpkg.c`` of rpm does: a page of slots, then blobs in blocks of 16 bytes."""
    slots = struct.pack("<4s7I", b"RpmP", 0, 1, 1, 0, 0, 0, 0)
    blobs = b""
    for number, data in enumerate(headers, start=1):
        blob = struct.pack("<4sIII", b"BlbS", number + owner, 0, len(data)) + data
        blob += b"\0" * (-len(blob) % 16)
        slots += struct.pack("<4sIII", b"Slot", number, (4096 + len(blobs)) // 16, len(blob) // 16)
        blobs += blob
    while len(slots) < 4096:
        slots += struct.pack("<4sIII", b"Slot", 0, 0, 0)
    return slots + blobs


@pytest.mark.parametrize("name", ["Packages", pytest.param("rpmdb.sqlite", marks=needs_deserialize)])
def test_databases_that_rpm_and_berkeley_db_wrote(name):
    assert set(read_rpm_packages(fixture(name))) == EXPECTED


def test_ndb():
    packages = [("bash", "5.2"), ("libnccl", "2.21.5")]
    assert read_rpm_packages(make_ndb([header(*package) for package in packages])) == packages


@needs_deserialize
def test_system_packages_of_an_image_with_rpm():
    files = make_image({"/var/lib/rpm/rpmdb.sqlite": fixture("rpmdb.sqlite")}).files
    found = read_system(files, {})
    versions = {name: package.version for name, package in found.components.items()}
    assert versions == {"cuda": "12.4.127", "cudnn": "9.1.0.70", "nccl": "2.21.5"}
    assert found.skipped == ()


def test_damaged_database_is_said():
    found = read_system(make_image({"/var/lib/rpm/Packages": b"nothing of rpm"}).files, {})
    (skipped,) = found.skipped
    assert skipped.source.path == "/var/lib/rpm/Packages"
    assert "format that is not known" in skipped.reason


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not known"),
        (make_ndb([header("a", "1")], owner=7), "not where its slot says"),
        (struct.pack("<4sIII", b"RpmP", 9, 0, 0), "version 9"),
        (struct.pack("<4sIII", b"RpmP", 0, 0, 2**31), "cut off"),
        (b"RpmP", "damaged"),
        (b"\0" * 12 + struct.pack("<III", 0x061561, 9, 77) + b"\0" * 100, "pages of 77 bytes"),
        (make_ndb([b"\xff" * 64]), "longer than its record"),
        (make_ndb([b"\0\0"]), "damaged"),
    ],
)
def test_damage_is_an_error(data, message):
    with pytest.raises(RpmError, match=message):
        read_rpm_packages(data)


def test_records_that_overlap_end():
    data = bytearray(make_ndb([header("a", "1") + b"\0" * 40_000]))
    for position in range(48, 4096, 16):  # every slot points to the one blob, which all of them own
        data[position : position + 16] = struct.pack("<4sIII", b"Slot", 1, 256, 1)
    with pytest.raises(RpmError, match="overlap"):
        read_rpm_packages(bytes(data))


def test_chain_of_pages_that_leads_back_ends():
    data = bytearray(fixture("Packages"))
    size = struct.unpack_from("<I", data, 20)[0]
    for start in range(size, len(data), size):
        if data[start + 25] == 7:
            struct.pack_into("<I", data, start + 16, start // size)
    with contextlib.suppress(RpmError):
        read_rpm_packages(bytes(data))


@needs_deserialize
@pytest.mark.parametrize(
    "schema",
    [
        "CREATE VIEW Packages AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS blob FROM c",
        "CREATE TABLE Other (blob BLOB)",
        "CREATE TABLE Packages (x, blob GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL); INSERT INTO Packages VALUES (1)",
    ],
)
def test_hostile_schema_ends(schema):
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        data = connection.serialize()
    with pytest.raises(RpmError):
        read_rpm_packages(data)


def test_header_without_name_is_none():
    assert read_header(struct.pack(">II", 0, 0)) is None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_is_read_or_said(data):
    content = bytearray(fixture("Packages"))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with contextlib.suppress(RpmError):
        read_rpm_packages(bytes(content[:cut]))
