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


def make_sqlite(headers):
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)")
        connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(data,) for data in headers])
        connection.commit()
        return connection.serialize()


@needs_deserialize
def test_a_database_that_rpm_wrote():
    assert set(read_rpm_packages(fixture("rpmdb.sqlite"))) == EXPECTED


@needs_deserialize
def test_system_packages_of_an_image_with_rpm():
    files = make_image({"/var/lib/rpm/rpmdb.sqlite": fixture("rpmdb.sqlite")}).files
    found = read_system(files, {})
    versions = {name: package.version for name, package in found.components.items()}
    assert versions == {"cuda": "12.4.127", "cudnn": "9.1.0.70", "nccl": "2.21.5"}
    assert found.skipped == ()


@needs_deserialize
def test_damaged_database_is_said():
    found = read_system(make_image({"/var/lib/rpm/rpmdb.sqlite": b"nothing of rpm"}).files, {})
    (skipped,) = found.skipped
    assert skipped.source.path == "/var/lib/rpm/rpmdb.sqlite"
    assert "format that is not known" in skipped.reason


@pytest.mark.parametrize(("name", "form"), [("Packages", "Berkeley DB's"), ("Packages.db", "ndb's")])
def test_databases_of_other_formats_are_named_with_what_converts_them(name, form):
    found = read_system(make_image({f"/var/lib/rpm/{name}": b"anything"}).files, {})
    (note,) = found.notes
    assert f"/var/lib/rpm/{name} is an rpm database in {form} format, which is not read" in note
    assert "rpm --rebuilddb" in note
    assert not found.skipped


@needs_deserialize
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not known"),
        (make_sqlite([b"\xff" * 64]) if hasattr(sqlite3.Connection, "serialize") else b"", "longer than its record"),
        (make_sqlite([b"\0\0"]) if hasattr(sqlite3.Connection, "serialize") else b"", "damaged"),
    ],
)
def test_damage_is_an_error(data, message):
    with pytest.raises(RpmError, match=message):
        read_rpm_packages(data)


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


@needs_deserialize
@settings(max_examples=200)
@given(st.data())
def test_any_damage_is_read_or_said(data):
    content = bytearray(fixture("rpmdb.sqlite"))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with contextlib.suppress(RpmError):
        read_rpm_packages(bytes(content[:cut]))
