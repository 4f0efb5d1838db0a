"""A command that is killed at any point and run again leaves what one leaves that was not: nothing lost and nothing twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from compatcheck.core.errors import EXIT_NOTHING_TO_CHECK
from tests.faults.desk import COMMANDS, WRITES_AT_THE_END, Desk, Done

pytestmark = pytest.mark.slow

ADDS = {"probe run"}
"""What measures each time that it is run: one measurement more for each run that got so far."""


def kill(process, seconds: float) -> None:
    time.sleep(seconds)
    process.kill()
    process.communicate()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_any_point_loses_and_doubles_nothing(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, command: str
) -> None:
    began = time.monotonic()
    whole = undisturbed(command)
    seconds, drawn = time.monotonic() - began, random.Random()
    out = tmp_path / "killed"
    shutil.rmtree(desk.layers, ignore_errors=True)
    shares = sorted(drawn.uniform(0.1, 0.95) for _ in range(3))
    for share in shares:
        kill(desk.start(command, out), share * seconds)
        kept, all_of_it = (Counter(one.get("evidence", "").splitlines()) for one in (desk.read(out), whole.left))
        assert kept <= all_of_it or command in ADDS, share
    if command in WRITES_AT_THE_END:  # where none of the kills hit the moment of writing
        for name in whole.left:
            (out / name).write_text("x" + (tmp_path / "undisturbed" / name).read_text() * 2)
    again = desk.run(command, out)
    done_before = command == "fix" and again.code == EXIT_NOTHING_TO_CHECK  # a killed run had written the change
    assert done_before or again.code == whole.code, (shares, again.err)
    left = dict(again.left)
    if command in ADDS:
        left["evidence"] = "\n".join(sorted(set(left["evidence"].splitlines())))
    assert left == whole.left, shares


@pytest.mark.parametrize("command", ["sweep", "bisect"])
def test_what_was_kept_before_a_kill_is_not_measured_again(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, command: str
) -> None:
    """Each measurement is kept as soon as it is made: one that comes back with another time was made twice."""
    whole = undisturbed(command)
    store = tmp_path / "killed" / "evidence.sqlite3"
    process = desk.start(command, store.parent)
    while not (before := list_kept(store)):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert len(before) < len(whole.left["evidence"].splitlines())
    assert desk.run(command, store.parent).left == whole.left
    assert before <= list_kept(store)


def list_kept(store: Path) -> set[str]:
    """Return what a store keeps, with when it was measured."""
    if not store.exists():
        return set()
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection, suppress(sqlite3.OperationalError):
        return {data for (data,) in connection.execute("SELECT data FROM measurement")}
    return set()


def test_half_a_record_of_the_cache_is_read_anew(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path
) -> None:
    whole = undisturbed("image")
    for share in (0, 0.01, 0.5, 0.99):
        kept = {path: path.read_bytes() for path in desk.layers.iterdir()}
        assert kept
        for path, record in kept.items():
            path.write_bytes(record[: int(share * len(record))])
        assert desk.run("image", tmp_path / "again") == whole
        assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.parametrize("command", ["bulk", "sweep", "bisect", "confirm", "probe run"])
def test_a_command_that_is_told_to_end_leaves_no_process(desk: Desk, tmp_path: Path, command: str) -> None:
    process = desk.start(command, tmp_path / "ended", COMPATCHECK_MARK=str(tmp_path))
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while (left := find_marked(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def find_marked(mark: str) -> list[str]:
    """Return the command lines of processes that were started with a mark among their variables."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdecimal()
                and int(entry.name) != os.getpid()
                and mark.encode() in (entry / "environ").read_bytes()
            ):
                found.append((entry / "cmdline").read_bytes().decode().replace("\0", " "))
        except OSError:
            continue
    return found
