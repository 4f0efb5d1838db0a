"""The index says what a store holds without opening it, and says that it does not know where it is of another file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from compatcheck.lab.evidence.index import holds_any, index_path
from compatcheck.lab.evidence.store import EvidenceStore
from tests.unit.lab.evidence.drawn_measurements import measurement

ASKED = [("zero3_release", {"deepspeed": "0.16.7"})]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "evidence.sqlite3")


def add(path: str, **changes: object) -> None:
    with EvidenceStore(path) as store:
        store.add(measurement(**changes))


def test_it_holds_what_succeeded_with_the_releases_asked_for(path: str) -> None:
    assert holds_any(path, ASKED) is None
    add(path, status="timeout")
    assert holds_any(path, ASKED) is False
    add(path)
    assert holds_any(path, ASKED) is True
    assert holds_any(path, [("zero3_release", {"deepspeed": "0.16.7", "numpy": "1.26.0"})]) is False
    assert holds_any(path, [("zero3_release", {"deepspeed": "0.16"})]) is False
    assert holds_any(path, [("another", {"deepspeed": "0.16.7"})]) is False
    assert holds_any(path, []) is False


def test_it_grows_with_the_store_and_is_made_anew_where_it_is_missing(path: str) -> None:
    add(path, versions={"deepspeed": "0.16.4"})
    add(path)
    assert holds_any(path, ASKED) is True
    os.remove(index_path(path))
    assert holds_any(path, ASKED) is None
    add(path, versions={"deepspeed": "0.16.8"})
    assert holds_any(path, ASKED) is True


def test_it_is_not_believed_about_another_file(path: str) -> None:
    add(path, versions={"deepspeed": "0.16.4"})
    shutil.copy(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)
    assert holds_any(path, ASKED) is None


@pytest.mark.parametrize("content", [b"", b"\xff\0\n", b"compatcheck-evidence-index 2 1\n"])
def test_what_is_no_index_is_not_believed(path: str, content: bytes) -> None:
    add(path)
    Path(index_path(path)).write_bytes(content)
    assert holds_any(path, ASKED) is None


def test_a_store_beside_which_no_index_can_be_written_still_keeps_measurements(path: str) -> None:
    os.mkdir(index_path(path))
    add(path)
    with EvidenceStore(path, read_only=True, follows=False) as store:
        assert len(store) == 1


def test_reading_a_store_as_it_is_makes_no_file_beside_it(path: str) -> None:
    add(path)
    before = sorted(os.listdir(os.path.dirname(path)))
    with EvidenceStore(path, read_only=True, follows=False) as store:
        assert len(store) == 1
        assert sorted(os.listdir(os.path.dirname(path))) == before


def test_reading_a_store_as_it_is_sees_what_a_writer_has_not_merged_yet(path: str) -> None:
    with EvidenceStore(path) as writer:
        writer.add(measurement())
        assert os.path.getsize(f"{path}-wal")
        with EvidenceStore(path, read_only=True, follows=False) as store:
            assert len(store) == 1
