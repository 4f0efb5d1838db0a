"""Files that are left out of a plain run, and when."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT
from tests.conftest import CORPUS


def test_files_of_the_corpus_are_there() -> None:
    assert [name for name in sorted(CORPUS) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("arguments", "collected"),
    [(("tests/cases/test_expected.py",), False), (("tests/cases/test_verdict_cases.py",), True)],
)
def test_a_named_file_runs_whole(arguments: tuple[str, ...], *, collected: bool) -> None:
    ran = subprocess.run(
        (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("tests/cases/test_verdict_cases.py::" in ran.stdout) is collected
    assert "deselected" not in ran.stdout
