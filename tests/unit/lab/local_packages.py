"""Small packages with a history, and an interpreter to lay them over: releases, commits and neighbours without a network.

`leaky` holds as many bytes as its ``BYTES`` says, and what `helper` adds to them. torch is a stand-in of a few lines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck.core.programs import find_program
from compatcheck.lab.environments.installer import find_installer
from compatcheck.lab.environments.overlay import Base, Overlays
from tests.unit.lab.pack_wheel import pack
from tests.unit.lab.probes.test_runner import TORCH

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
PROBE = '''
"""Bytes that leaky holds, and that its helper adds.

A healthy release holds two.
"""
PACKAGES = ("leaky",)
BACKENDS = ("cpu",)
ACCOUNTING = "storages"
DEFAULTS = {"factor": 1}
SIZES = ()
METRIC = "held_bytes"

def predict(parameters):
    return {"held_bytes": 2 * parameters["factor"]}

def tolerance(parameters):
    return 0

def facts(parameters):
    return {}

def run(parameters, recorder):
    import leaky
    recorder.result("held_bytes", leaky.hold() * parameters["factor"])
'''


def leaky(held: int) -> str:
    """Return a module that holds so many bytes."""
    return f"import helper\nBYTES = {held}\n\ndef hold():\n    return BYTES + helper.MORE\n"


class Tree:
    """A git repository of leaky."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
        shutil.copy(Path(__file__).with_name("pack_wheel.py"), folder / "backend.py")

    @property
    def requirement(self) -> str:
        """Names the tree as it is."""
        return f"leaky @ {self.folder.as_uri()}"

    def write(self, held: int, version: str = "1.0") -> None:
        """Change the tree."""
        (self.folder / "release.py").write_text(
            f"NAME, VERSION, NEEDS = 'leaky', {version!r}, ('helper',)\n", encoding="utf-8"
        )
        (self.folder / "leaky.py").write_text(leaky(held), encoding="utf-8")

    def commit(self, held: int, version: str = "1.0", message: str = "work", tag: str | None = None) -> str:
        """Change the tree, commit it, and return the hash."""
        self.write(held, version)
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", message)
        if tag:
            self.git("tag", tag)
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        """Run git in the tree."""
        return subprocess.run(
            ["git", "-C", str(self.folder), *arguments], check=True, capture_output=True, text=True
        ).stdout


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """An interpreter with a stand-in for torch."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    for name, text in TORCH.items():
        path = site / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    info = site / "torch-2.13.0+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n", encoding="utf-8")
    return Base(str(folder / "bin" / "python"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that uv takes releases from, and nothing else."""
    if find_program("uv").path is None:
        pytest.skip("needs uv")
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "index"
    folder.mkdir()
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "nothing").as_uri())
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("COMPATCHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(tmp_path / "evidence.sqlite3"))
    monkeypatch.setattr("compatcheck.lab.environments.installer.uv_variables", dict)
    pack(folder, "helper", "1.0", "MORE = 0\n")
    return folder


@pytest.fixture
def overlays(base: Base, index: Path) -> Overlays:
    """Overlays over that interpreter."""
    return Overlays(base, installer=find_installer("uv"), directory=index.parent / "environments")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A git repository of leaky without a commit."""
    return Tree(tmp_path / "leaky")


@pytest.fixture
def probe(tmp_path: Path) -> str:
    """The file of a probe of leaky."""
    path = tmp_path / "held_by_leaky.py"
    path.write_text(PROBE, encoding="utf-8")
    return str(path)
