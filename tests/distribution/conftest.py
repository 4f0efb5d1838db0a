"""A wheel of this checkout, and what a test needs to run what is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import ROOT
from tests.distribution.building import Run, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from the checkout."""
    pytest.importorskip("hatchling")
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheel's files, as an installation has them."""
    target = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture
def run_unpacked(unpacked: Path, tmp_path: Path) -> Run:
    """Return a function that runs compatcheck as the wheel has it, far from the checkout."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        hidden = {"FORCE_COLOR", "COLUMNS", "VIRTUAL_ENV", "CONDA_PREFIX"}
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        return subprocess.run(
            [sys.executable, "-m", "compatcheck", *arguments],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(unpacked)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
