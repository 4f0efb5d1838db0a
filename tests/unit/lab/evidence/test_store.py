"""The store keeps every measurement once, under several processes and threads, and says what is wrong with a file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import EXIT_UNREADABLE_INPUT, InputError
from compatcheck.lab.evidence.store import APPLICATION_ID, MIGRATIONS, EvidenceStore, identify
from compatcheck.lab.location import store_path
from compatcheck.lab.measurement import from_json, to_json
from tests import ROOT
from tests.unit.lab.evidence.drawn_measurements import measurement, measurements

TASK = {
    "probe": "zero3_release",
    "probe_hash": "0123456789ab",
    "backend": "cpu",
    "accounting": "allocator",
    "parameters": {"checkpointing": "non-reentrant", "layers": 12, "world_size": 2},
    "versions": {"deepspeed": "0.16.7"},
}


def test_where_it_is() -> None:
    assert store_path({"COMPATCHECK_EVIDENCE": "/a/b"}) == "/a/b"
    assert store_path({"COMPATCHECK_EVIDENCE": "~/b"}) == os.path.expanduser("~/b")
    assert store_path({"XDG_DATA_HOME": "/data"}) == "/data/compatcheck/evidence.sqlite3"
    home = os.path.expanduser("~/.local/share/compatcheck/evidence.sqlite3")
    assert (
        store_path({}) == store_path({"XDG_DATA_HOME": "relative"}) == store_path({"COMPATCHECK_EVIDENCE": ""}) == home
    )


def test_what_was_added_is_found_again(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "evidence.sqlite3")
    with EvidenceStore(path) as store:
        assert len(store) == 0
        assert store.find(**TASK) is None
        store.add(measurement())
        store.add(measurement())
        assert len(store) == 1
        assert store.find(**TASK) == measurement()
    with EvidenceStore(path, read_only=True) as store:
        (stored,) = store.list()
        assert stored == (identify(measurement()), measurement())
        assert store.get(stored.id[:3]) == (stored,)


@pytest.mark.parametrize(
    "change",
    [
        {"probe": "other"},
        {"probe_hash": "another text"},
        {"backend": "fake"},
        {"accounting": "storages"},
        {"parameters": {"layers": 12}},
        {"versions": {"deepspeed": "0.16.8"}},
        {"versions": {"deepspeed": "0.16.7", "transformers": "4.57.6"}},
    ],
)
def test_another_task_is_not_found(tmp_path: Path, change: dict[str, object]) -> None:
    with EvidenceStore(str(tmp_path / "e")) as store:
        store.add(measurement())
        assert store.find(**{**TASK, **change}) is None  # type: ignore[arg-type]


def test_resuming_takes_the_newest_result_and_tries_failures_again(tmp_path: Path) -> None:
    with EvidenceStore(str(tmp_path / "e")) as store:
        for day, status in enumerate(("failed", "timeout", "oom", "interrupted"), 24):
            store.add(measurement(status=status, time=f"2026-11-{day}T00:00:00+00:00"))
        assert store.find(**TASK) is None
        store.add(measurement(status="unsupported", time="2026-11-21T00:00:00+00:00"))
        store.add(measurement(results={"kept_bytes": 1}, time="2026-11-23T00:00:00+00:00"))
        store.add(measurement(results={"kept_bytes": 2}, time="2026-11-22T00:00:00+00:00"))
        found = store.find(**TASK)
        assert found is not None
        assert found.results == {"kept_bytes": 1}
        assert next(store.list()).measurement.status == "interrupted"


def test_filters(tmp_path: Path) -> None:
    with EvidenceStore(str(tmp_path / "e")) as store:
        store.add_all(
            [
                measurement(),
                measurement(probe="zero3_master_copy", time="2026-11-22T00:00:00+00:00"),
                measurement(
                    probe="moe", backend="fake", versions={"transformers": "5.0.0"}, parameters={"deepspeed": "0.16.7"}
                ),
                measurement(status="failed", parameters={"layers": 4}),
            ]
        )

        def count(**filters: object) -> int:
            return len(list(store.list(**filters)))  # type: ignore[arg-type]

        assert count() == 4
        assert count(probe="zero3_*") == 3
        assert count(probe="zero3_master_copy") == 1
        assert count(backend="fake") == 1
        assert count(status="failed") == 1
        assert count(parameters={"layers": 4}) == 1
        assert count(versions={"deepspeed": "0.16.7"}) == 3
        assert count(since="2026-11-22") == 1
        assert store.get("") == store.get("zz") == store.get("*") == ()


@given(st.lists(measurements, max_size=5))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_measurements(tmp_path: Path, drawn: list) -> None:
    path = tmp_path / "e"
    for name in tmp_path.iterdir():
        name.unlink()
    with EvidenceStore(str(path)) as store:
        assert store.add_all(drawn) == len({identify(one) for one in drawn})
        assert store.add_all(drawn) == 0
        kept = {stored.id: to_json(stored.measurement) for stored in store.list()}
    assert kept == {identify(one): to_json(from_json(to_json(one))) for one in drawn}


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from tests.unit.lab.evidence.drawn_measurements import measurement
from compatcheck.lab.evidence.store import EvidenceStore

with EvidenceStore(sys.argv[1]) as store:
    for index in range(40):
        store.add(measurement(parameters={"writer": int(sys.argv[2]), "index": index}))
"""


def test_processes_may_make_and_fill_it_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "e")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(number), str(ROOT), str(Path(__file__).parent)],
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, errors
    with EvidenceStore(path, read_only=True) as store:
        assert len(store) == 160


def test_threads_may_share_it(tmp_path: Path) -> None:
    with EvidenceStore(str(tmp_path / "e")) as store:

        def add(index: int) -> None:
            store.add(measurement(parameters={"index": index}))
            assert store.find(**{**TASK, "parameters": {"index": index}}) is not None  # type: ignore[arg-type]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(100)))
        assert len(store) == 100


def test_nothing_is_made_to_read(tmp_path: Path) -> None:
    path = tmp_path / "none" / "e"
    with EvidenceStore(str(path), read_only=True) as store:
        assert len(store) == 0
        assert list(store.list()) == []
        assert store.find(**TASK) is None
    assert not path.parent.exists()
    empty = tmp_path / "empty"
    empty.touch()
    with EvidenceStore(str(empty), read_only=True) as store:
        assert len(store) == 0


@pytest.mark.parametrize("read_only", [True, False])
def test_what_is_no_store_is_named_with_a_remedy(tmp_path: Path, *, read_only: bool) -> None:
    text, foreign, newer, folder = (tmp_path / name for name in ("text", "foreign", "newer", "folder"))
    text.write_text("no database\n" * 100)
    folder.mkdir()
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE cookies (name)")
    connection.close()
    EvidenceStore(str(newer)).add(measurement())
    with sqlite3.connect(newer) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    for path, reason in (
        (text, "not a store"),
        (foreign, "another program"),
        (newer, "newer release"),
        (folder, "directory"),
    ):
        store = EvidenceStore(str(path), read_only=read_only)
        with pytest.raises(InputError, match=reason) as caught:
            list(store.list())
        store.close()
        assert caught.value.exit_code == EXIT_UNREADABLE_INPUT
        assert caught.value.source is not None
        assert caught.value.source.path == str(path)
        assert caught.value.hint
    assert text.read_text().startswith("no database")


def test_a_damaged_store_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "e"
    with EvidenceStore(str(path)) as store:
        store.add_all(measurement(parameters={"index": index}) for index in range(200))
    data = bytearray(path.read_bytes())
    data[4096 * 2 : 4096 * 6] = b"\xff" * (4096 * 4)
    path.write_bytes(data)
    with EvidenceStore(str(path)) as store, pytest.raises(InputError) as caught:
        list(store.list())
    assert "damaged" in caught.value.message
    assert "recover" in str(caught.value.hint)


def test_a_row_that_is_no_measurement_is_named(tmp_path: Path) -> None:
    path = tmp_path / "e"
    with EvidenceStore(str(path)) as store:
        store.add(measurement())
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.execute('UPDATE measurement SET data = \'{"status": "fine"}\'')
    connection.close()
    with (
        EvidenceStore(str(path)) as store,
        pytest.raises(InputError, match=r"measurement .* cannot be read: status 'fine'"),
    ):
        list(store.list())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        EvidenceStore(str(tmp_path / "file" / "e")) as store,
        pytest.raises(InputError, match="cannot be kept") as caught,
    ):
        store.add(measurement())
    assert "COMPATCHECK_EVIDENCE" in str(caught.value.hint)
