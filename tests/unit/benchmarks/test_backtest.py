"""How the matrix of a back-test is read."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from benchmarks.backtest import read_matrix
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MATRIX = ROOT / "benchmarks" / "inputs" / "backtest2.txt"


def test_each_line_of_a_package_is_covered_pairwise(tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text(
        "# a remark\ntrl trainer=dpo batch=4,1 options=,bf16:false adapter=none,lora+use_dora:true\naccelerate trainer=hf\n"
    )
    runs = [task.parameters for task in read_matrix(path, "trl")]
    assert {run["trainer"] for run in runs} == {"dpo"}
    assert {(run["batch"], run["options"]) for run in runs} == set(product((4, 1), ("", "bf16:false")))
    assert {run["adapter"] for run in runs} == {"none", "lora+use_dora:true"}
    assert len(runs) < 2 * 2 * 2
    (other,) = read_matrix(path, "accelerate")
    assert other.parameters["trainer"] == "hf"


@pytest.mark.parametrize("package", ["trl", "transformers", "peft", "accelerate", "deepspeed"])
def test_every_run_of_the_second_round_uses_its_package_and_is_there_once(package: str) -> None:
    tasks = read_matrix(MATRIX, package)
    assert tasks
    assert all(package in task.probe.needs(task.parameters) for task in tasks)
    assert len({tuple(task.parameters.items()) for task in tasks}) == len(tasks)
