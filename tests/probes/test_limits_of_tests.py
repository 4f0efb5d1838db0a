"""Peaks that the marker `limit_gpu_memory` counts, with torch."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.unit.integrations.test_pytest_plugin import run_pytest

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.lab.environments.overlay import Overlays

TESTS = """
import pytest

torch = pytest.importorskip("torch")

@pytest.fixture
def layer():
    return torch.nn.Linear(1024, 1024)  # 4 MiB, its gradient as many

@pytest.mark.limit_gpu_memory("1 MiB")
def test_above(layer):
    layer(torch.ones(4, 1024)).sum().backward()

@pytest.mark.limit_gpu_memory("9 MiB")
def test_below(layer):
    layer(torch.ones(4, 1024)).sum().backward()

@pytest.mark.limit_gpu_memory("1 MiB")
def test_of_a_failure_of_its_own(layer):
    assert layer is None

@pytest.mark.limit_gpu_memory("10 GiB", on="fake")
def test_full_size():
    layer = torch.nn.Linear(100_000, 100_000)
    layer(torch.ones(4, 100_000)).sum().backward()

@pytest.mark.limit_gpu_memory("1 GiB", on="cuda")
def test_on_a_device():
    pass

def test_without_a_limit():
    torch.ones(3)
"""


@pytest.mark.versions
@pytest.mark.ci
def test_what_is_held_at_the_peak_decides(tmp_path: Path, overlays: Overlays) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    interpreter = overlays.open([f"pytest=={version('pytest')}"])
    said = run_pytest(tmp_path, interpreter.python, interpreter.paths)
    results = {line.split(" - ")[0].split("::")[-1]: line.split()[0] for line in said.splitlines() if "::test_" in line}
    assert results == {
        "test_above": "FAILED",
        "test_below": "PASSED",
        "test_of_a_failure_of_its_own": "FAILED",
        "test_full_size": "FAILED",
        "test_without_a_limit": "PASSED",
    }, said
    assert "1 skipped" in said  # there is no CUDA device
    assert "8.02 MiB in tensor storages at the peak" in said
    assert "74.5 GiB in fake tensors at the peak" in said
    assert "7.02 MiB above limit_gpu_memory('1 MiB')" in said
    failures = said.split("short test summary info")[0]  # the summary repeats messages, whole ones where CI is set
    assert failures.count("above limit_gpu_memory(") == 2  # a failure of its own is said alone
