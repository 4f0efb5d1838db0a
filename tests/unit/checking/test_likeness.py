"""Inputs that another machine has otherwise, or not at all, are told."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from compatcheck.checking.likeness import Likeness, describe
from compatcheck.core.errors import InputError


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Likeness:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "uv.lock").write_text("a")
    (tmp_path / "hub" / "models--a--b" / "snapshots" / "1").mkdir(parents=True)
    found = describe(["project", "project/uv.lock", "a\0b", "gone.txt"], str(tmp_path / "hub"))
    monkeypatch.chdir("/")
    return pickle.loads(pickle.dumps(found))


def test_what_is_alike_is_taken(described: Likeness) -> None:
    described.require()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: (root / "project" / "uv.lock").unlink(), "project: is another one there"),
        (lambda root: os.utime(root / "project" / "uv.lock", (1, 1)), "project: is another one there"),
        (lambda root: (root / "project" / "more.txt").touch(), "project: is another one there"),
        (lambda root: (root / "gone.txt").touch(), "gone.txt: is another one there"),
        (lambda root: (root / "project").rename(root / "other"), "project: is not there"),
        (lambda root: (root / "hub" / "models--a--b" / "snapshots" / "2").mkdir(), "hub: is another one there"),
    ],
)
def test_what_differs_is_named(described: Likeness, tmp_path: Path, change, said: str) -> None:
    change(tmp_path)
    with pytest.raises(InputError, match=said):
        described.require()
