from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _plain_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every command in an empty directory, without a policy, a hub cache or measurements of the person who tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(tmp_path / "evidence.sqlite3"))
