"""What the store has said that it keeps is there once, whoever is stopped and however full the disk is."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compatcheck.lab.evidence.store import EvidenceStore
from tests import ROOT

ADD = """
import sys
from compatcheck.core.errors import InputError
from compatcheck.lab.evidence.store import EvidenceStore
from tests.unit.lab.evidence.drawn_measurements import measurement
if len(sys.argv) > 3:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    with EvidenceStore(sys.argv[1]) as store:
        for number in range(int(sys.argv[2])):
            store.add(measurement(parameters={"number": number}))
            print(number, flush=True)
except InputError as error:
    sys.exit(str(error))
"""


def command(path: Path, count: int, *limit: int) -> list[str]:
    return [sys.executable, "-c", ADD, str(path), str(count), *map(str, limit)]


def numbers(path: Path) -> list[object]:
    with EvidenceStore(str(path), read_only=True) as store:
        return sorted(stored.measurement.parameters["number"] for stored in store.list())


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    path, said = tmp_path / "evidence.sqlite3", set()
    drawn = random.Random(seed)
    for _ in range(3):
        process = subprocess.Popen(command(path, 150), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said |= {process.stdout.readline() for _ in range(drawn.randrange(1, 60))}
        time.sleep(drawn.random() / 50)
        process.kill()
        said |= set(process.communicate()[0].splitlines(keepends=True))
        kept = numbers(path)
        assert len(set(kept)) == len(kept)
        assert {int(number) for number in said if number.strip()} <= set(kept)
    subprocess.run(command(path, 150), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert numbers(path) == list(range(150))


def test_a_full_disk_is_said_and_what_was_kept_stays(tmp_path: Path) -> None:
    path = tmp_path / "evidence.sqlite3"
    subprocess.run(command(path, 3), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    room = path.stat().st_size + 4096
    done = subprocess.run(command(path, 500, room), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert str(path) in done.stderr
    said = {int(number) for number in done.stdout.split()}
    assert said <= set(numbers(path))
    subprocess.run(command(path, 20), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert set(range(20)) <= set(numbers(path))
