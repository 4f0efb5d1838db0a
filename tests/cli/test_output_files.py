"""Files of reports are of one run, however many write them at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from compatcheck.cli.output import write_files

fcntl = pytest.importorskip("fcntl")


def test_a_file_that_another_run_is_writing_is_waited_for_and_then_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("half of it, ")
        other.flush()
        writer = threading.Thread(target=write_files, args=([("--output", str(path), "short")],), daemon=True)
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        other.write("and the rest, which is longer than what the other run has to say\n")
    writer.join(30)
    assert path.read_text() == "short\n"
