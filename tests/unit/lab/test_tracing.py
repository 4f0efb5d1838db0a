"""The function that --module names."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import UsageError
from compatcheck.lab.tracing import find_own


def test_a_function_of_a_file_or_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('imported')\n")
    found = find_own("train.py:build")
    assert (found.file, found.module, found.function) == (str(tmp_path / "train.py"), None, "build")
    found = find_own("pkg.mod:make")
    assert (found.file, found.module, found.function, found.folder) == (None, "pkg.mod", "make", str(tmp_path))


@pytest.mark.parametrize(
    "named", ["train.py", "train.py:", ":build", "pkg.mod", "no.py:build", "a b:build", "pkg:1st", "x/y:f"]
)
def test_what_names_no_function_is_refused_before_anything_runs(named: str) -> None:
    with pytest.raises(UsageError, match="--module"):
        find_own(named)
