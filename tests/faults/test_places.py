"""A full disk, a home that cannot be written, and two runs at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from compatcheck.core.errors import EXIT_INTERNAL_ERROR, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from tests import ROOT
from tests.faults.desk import COMMANDS, Desk, Done

pytestmark = pytest.mark.slow

MEASURING = {"sweep", "bisect", "confirm", "watch", "probe run"}
SMALL = """
set -e
mount -t tmpfs -o size=$ROOM tmpfs "$OUT"
cp -r "$STAGED"/. "$OUT" 2> /dev/null || true
"$@" && code=0 || code=$?
cp -r "$OUT"/. "$LEFT"
mount -o remount,size=64m "$OUT"
"$@" > /dev/null 2> /dev/null || true
cp -r "$OUT"/. "$AGAIN"
exit $code
"""
"""Runs a command on a small disk, then makes room and runs it again."""
FILLS = {*MEASURING, "evidence import"}
"""What adds to a store, in which something is kept already."""
KEPT = ROOT / "fixtures" / "measurements" / "attention_default" / "qwen2.jsonl"
ROOMS = {"fix": "12k", "bulk": "64k", **dict.fromkeys(FILLS, "72k")}
"""How large a disk is on which a command begins and does not end; four pages for others."""


def can_mount() -> bool:
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        sys.platform == "linux"
        and bool(shutil.which("unshare"))
        and not subprocess.run(command, check=False, capture_output=True).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="may not mount a disk of its own")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_and_room_is_all_it_takes(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, command: str
) -> None:
    whole = undisturbed(command)
    out, places = tmp_path / "full", {name: tmp_path / name for name in ("staged", "left", "again")}
    for place in places.values():
        place.mkdir()
    COMMANDS[command].prepare(desk, places["staged"])
    if command in FILLS:
        environ = {**desk.environ, "COMPATCHECK_EVIDENCE": str(places["staged"] / "evidence.sqlite3")}
        importing = [sys.executable, "-m", "compatcheck", "evidence", "import", str(KEPT)]
        subprocess.run(importing, env=environ, check=True, capture_output=True)
    before_it = desk.read(places["staged"])
    variables = {name.upper(): str(place) for name, place in places.items()}
    before = ("unshare", "-Urm", "sh", "-c", SMALL, "sh")
    variables |= {"OUT": str(out), "ROOM": ROOMS.get(command, "16k")}
    full = desk.finish(desk.start(command, out, before=before, **variables), out)
    assert full.code in {2, 4}, (full.code, full.err)
    assert "No space left" in full.err or "disk is full" in full.err, full.err
    assert str(EXIT_INTERNAL_ERROR) not in full.err
    again = {name: text.replace(str(places["again"]), "OUT") for name, text in desk.read(places["again"]).items()}
    left = desk.read(places["left"])
    if command in FILLS:
        all_of_it = count(before_it) + count(whole.left)
        assert count(before_it) <= count(left) <= all_of_it
        assert count(again) == all_of_it
        again["evidence"] = whole.left["evidence"]
    assert again == whole.left
    if command == "bulk":
        lines = left["checked.jsonl"].splitlines(keepends=True)
        whole_lines = [line for line in lines if line.endswith("\n")]
        assert whole_lines
        assert whole.left["checked.jsonl"].startswith("".join(whole_lines))
    elif command == "fix":
        assert left == before_it
    elif command not in FILLS:
        assert "OUT/" in full.err


def count(left: Mapping[str, str]) -> Counter[str]:
    """Count the measurements that a store keeps."""
    return Counter(left["evidence"].splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_home_that_cannot_be_written_is_said_or_not_needed(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, command: str
) -> None:
    whole = undisturbed(command)
    nowhere = "/proc/sys/home"  # not even for root
    kept = command.startswith("evidence export")
    variables = dict.fromkeys(("COMPATCHECK_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME"))
    evidence = {} if kept else {"COMPATCHECK_EVIDENCE": None}
    done = desk.run(
        command, tmp_path / "homeless", HOME=nowhere, UV_CACHE_DIR=str(tmp_path / "uv"), **variables, **evidence
    )
    if command in {*MEASURING, "evidence import"}:
        assert done.code in {2, 4}, (done.code, done.err)
        assert nowhere in done.err
    else:
        assert (done.code, done.left) == (whole.code, whole.left), done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_two_runs_at_once_leave_what_one_leaves(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, command: str
) -> None:
    whole = undisturbed(command)
    out = tmp_path / "both"
    processes = [desk.start(command, out) for _ in range(2)]
    both = [desk.finish(process, out) for process in processes]
    codes = sorted(done.code for done in both)
    assert codes[0] in {whole.code, 0} or command == "bulk", [done.err for done in both]
    if command == "bulk":  # one of them is refused
        assert codes == [whole.code, 2]
        assert any("is being written by another run" in done.err for done in both)
    elif command == "fix":  # the second of two finds what the first has done, or is doing
        assert codes[1] in {whole.code, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT}, [done.err for done in both]
    else:
        assert codes == [whole.code] * 2, [done.err for done in both]
    left = desk.read(out)
    if command in MEASURING:  # both may measure the same at the same time, and what one has kept the other takes
        evidence = Counter(left["evidence"].splitlines())
        assert max(evidence.values()) <= 2
        left["evidence"] = "\n".join(sorted(evidence))
    assert left == whole.left
    assert not [path for path in out.rglob("*") if path.name.endswith((".tmp", ".part"))]
    assert os.listdir(out)
