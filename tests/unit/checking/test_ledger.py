"""Lines are written once, whoever stops the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck.checking.ledger import Ledger
from compatcheck.core.errors import InputError, UsageError
from tests import ROOT

CODES = frozenset({0, 1})


def line(number: int, asked: str = "x") -> str:
    return json.dumps({"input": str(number), "run": asked, "exit_code": 0})


def write(path: Path, numbers: range) -> None:
    ledger = Ledger(str(path), "x", CODES, ("other options",))
    assert [record["input"] for record in ledger.read()] == [str(number) for number in range(numbers.start)]
    for number in numbers:
        ledger.write(line(number))
    ledger.close()


def test_a_line_that_was_not_finished_is_written_again(tmp_path: Path):
    write(tmp_path / "a", range(3))
    with (tmp_path / "a").open("a") as file:
        file.write(line(3)[:8])
    write(tmp_path / "a", range(3, 5))
    assert (tmp_path / "a").read_text().splitlines() == [line(number) for number in range(5)]


@pytest.mark.parametrize(
    "text",
    [
        "not JSON\n",
        "[]\n",
        "{}\n",
        line(0, "y") + "\n",
        '{"run": "x", "input": "0"}\n',
        *(
            f'{{"run": "x", "input": "0", "exit_code": {code}}}\n'
            for code in ("null", '"0"', "-1", "true", "7", "1e999")
        ),
        '{"run": "x", "exit_code": 0, "a": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
    ],
)
def test_what_another_program_or_run_wrote_is_kept(tmp_path: Path, text: str):
    (tmp_path / "a").write_text(text)
    ledger = Ledger(str(tmp_path / "a"), "x", CODES, ("other options",))
    with pytest.raises(InputError):
        list(ledger.read())
    ledger.close()
    assert (tmp_path / "a").read_text() == text


def test_two_runs_do_not_write_one_file(tmp_path: Path):
    first = Ledger(str(tmp_path / "a"), "x", CODES, ("other options",))
    with pytest.raises(UsageError, match="another run"):
        Ledger(str(tmp_path / "a"), "x", CODES, ("other options",))
    first.close()
    Ledger(str(tmp_path / "a"), "x", CODES, ("other options",)).close()


def test_a_full_disk_ends_the_run_and_what_is_whole_stays(tmp_path: Path):
    code = """
import resource, sys
from compatcheck.checking.ledger import Ledger
resource.setrlimit(resource.RLIMIT_FSIZE, (180, 180))
ledger = Ledger(sys.argv[1], "x", frozenset({0}), ("other options",))
list(ledger.read())
for number in range(10):
    ledger.write('{"input": "%d", "run": "x", "exit_code": 0}' % number)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "cannot be written" in done.stderr
    assert (tmp_path / "a").stat().st_size == 180
    write(tmp_path / "a", range(4, 10))
    assert (tmp_path / "a").read_text().splitlines() == [line(number) for number in range(10)]


@pytest.mark.parametrize("name", ["none/a", "folder"])
def test_a_place_that_takes_no_file_is_refused(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        Ledger(str(tmp_path / name), "x", CODES, ("other options",))


def test_what_is_no_file_is_refused():
    with pytest.raises(UsageError, match="no regular file"):
        Ledger("/dev/full", "x", CODES, ("other options",))
