"""How the matrix of a back-test is read."""

from __future__ import annotations

import pytest

from benchmarks.backtest import read_matrix
from tests import ROOT

MATRIX = ROOT / "benchmarks" / "inputs" / "backtest2.txt"


@pytest.mark.parametrize("package", ["trl", "transformers", "peft", "accelerate", "deepspeed"])
def test_every_run_of_the_second_round_uses_its_package_and_is_there_once(package: str) -> None:
    tasks = read_matrix(MATRIX, 2, package)
    assert tasks
    assert all(package in task.probe.needs(task.parameters) for task in tasks)
    assert len({tuple(task.parameters.items()) for task in tasks}) == len(tasks)
