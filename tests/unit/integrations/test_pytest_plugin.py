"""The marker `limit_gpu_memory`, in runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def run_pytest(folder: Path, python: str, paths: tuple[str, ...] = (), *options: str) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((*paths, str(ROOT))), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [python, "-m", "pytest", "-p", "compatcheck.integrations.pytest_plugin", "--strict-markers", *options]
    done = subprocess.run(
        [*command, "-rA", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("marker", "is_valid"),
    [
        ("'12 GiB'", True),
        ("'800MiB', on='cpu'", True),
        ("'much'", False),
        ("12", False),
        ("'1 GiB', on='tpu'", False),
        ("'1 GiB', '2 GiB'", False),
        ("'1 GiB', device='cpu'", False),
    ],
)
def test_a_marker_that_makes_no_sense_stops_the_run(tmp_path: Path, marker: str, *, is_valid: bool) -> None:
    text = f"import pytest\n@pytest.mark.limit_gpu_memory({marker})\ndef test_it(): pass\n"
    (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
    said = run_pytest(tmp_path, sys.executable, (), "--collect-only", "-q")
    assert "1 test collected" in said
    assert ("ERROR" not in said) is is_valid
    assert ("takes one size such as '12 GiB'" in said) is not is_valid
