import os
import sys
import time
from pathlib import Path

import pytest

from compatcheck.core.process import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")


def script(tmp_path, body):
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return str(path)


def test_returns_output_and_exit_code(tmp_path):
    completed = run([script(tmp_path, "echo out; echo err >&2; exit 3\n")], timeout_seconds=5)
    assert completed.output == "out\nerr\n"
    assert completed.returncode == 3
    assert not completed.succeeded
    assert completed.describe() == "exit code 3: out"


def test_succeeds(tmp_path):
    completed = run([script(tmp_path, "echo $LC_ALL\n")], timeout_seconds=5)
    assert completed.succeeded
    assert completed.output == "C\n"


def test_stops_a_program_that_hangs(tmp_path):
    started = time.monotonic()
    completed = run([script(tmp_path, "echo partial\nsleep 60\n")], timeout_seconds=0.4)
    assert time.monotonic() - started < 2
    assert completed.output == "partial\n"
    assert completed.returncode is None
    assert completed.describe() == "tool did not answer within 0.4 s and was stopped"


def test_says_how_long_it_waited_in_round_numbers(tmp_path):
    completed = run([script(tmp_path, "sleep 60\n")], timeout_seconds=0.1234567)
    assert completed.describe() == "tool did not answer within 0.12 s and was stopped"


def test_stops_a_program_that_ignores_signals(tmp_path):
    started = time.monotonic()
    completed = run([script(tmp_path, "trap '' TERM INT HUP\nwhile :; do sleep 1; done\n")], timeout_seconds=0.3)
    assert time.monotonic() - started < 2
    assert completed.failure is not None


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_stops_a_program_that_floods(tmp_path, stream):
    started = time.monotonic()
    completed = run([script(tmp_path, f"yes{stream}\n")], timeout_seconds=20, output_limit_bytes=10_000)
    assert time.monotonic() - started < 5
    assert len(completed.output) == 10_000
    assert "more than 10000 bytes" in completed.describe()


def test_does_not_wait_for_a_grandchild_that_keeps_the_pipe(tmp_path):
    marker = tmp_path / "pid"
    body = f"sleep 60 &\necho $! > {marker}\necho done\n"
    started = time.monotonic()
    completed = run([script(tmp_path, body)], timeout_seconds=20)
    assert time.monotonic() - started < 5
    assert completed.succeeded
    assert completed.output == "done\n"
    wait_until_gone(int(marker.read_text()))


def test_kills_the_whole_process_group(tmp_path):
    marker = tmp_path / "pid"
    run([script(tmp_path, f"sleep 60 &\necho $! > {marker}\nwait\n")], timeout_seconds=0.5)
    wait_until_gone(int(marker.read_text()))


def test_stops_a_program_that_closes_its_output_and_stays(tmp_path):
    started = time.monotonic()
    completed = run([script(tmp_path, "exec >&- 2>&-\nsleep 60\n")], timeout_seconds=10)
    assert time.monotonic() - started < 5
    assert completed.returncode is None


def test_reports_a_program_that_is_not_there():
    completed = run(["/nowhere/nvidia-smi"], timeout_seconds=1)
    assert completed.describe() == "nvidia-smi could not be started: No such file or directory"


def test_reports_a_file_that_is_no_program(tmp_path):
    path = tmp_path / "tool"
    path.write_bytes(b"\0\1garbage")
    path.chmod(0o755)
    assert "could not be started" in run([str(path)], timeout_seconds=1).describe()


def test_decodes_what_is_not_utf8(tmp_path):
    assert run([script(tmp_path, "printf '\\377ok'\n")], timeout_seconds=5).output == "\ufffdok"


def wait_until_gone(pid):
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        try:
            state = Path(f"/proc/{pid}/stat").read_text()
            if state.rsplit(")", 1)[1].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")


def test_a_program_stands_in_an_empty_directory_that_is_gone_afterwards(tmp_path):
    completed = run([script(tmp_path, "ls -A; touch left; pwd\n")], timeout_seconds=5)
    place = completed.output.strip()
    assert "\n" not in place
    assert place != os.getcwd()
    assert not Path(place).exists()


@pytest.mark.parametrize("name", ["sh", "./tool", ""])
def test_a_program_that_would_be_looked_for_is_refused(name):
    with pytest.raises(ValueError, match="would be looked for on PATH"):
        run([name], timeout_seconds=5)


def test_little_of_the_environment_is_passed_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index")
    printed = run([script(tmp_path, "/usr/bin/env\n")], timeout_seconds=5).output
    names = {line.partition("=")[0] for line in printed.splitlines()}
    assert "PIP_INDEX_URL" in names
    assert names.isdisjoint({"PYTHONPATH", "LD_PRELOAD", "VIRTUAL_ENV"})


def test_where_no_directory_can_be_made_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tempfile.TemporaryDirectory", fail := lambda **_: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    assert fail
    assert run([script(tmp_path, "true\n")], timeout_seconds=5).failure == "tool could not be started: No space left"
