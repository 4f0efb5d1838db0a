"""How the matrix of a back-test is read."""

from __future__ import annotations

import pytest

from benchmarks.backtest import read_matrix
from benchmarks.backtest_score import read_drawn, score
from tests import ROOT

MATRIX = ROOT / "benchmarks" / "inputs" / "backtest2.txt"


@pytest.mark.parametrize("package", ["trl", "transformers", "peft", "accelerate", "deepspeed"])
def test_every_run_of_the_second_round_uses_its_package_and_is_there_once(package: str) -> None:
    tasks = read_matrix(MATRIX, 2, package)
    assert tasks
    assert all(package in task.probe.needs(task.parameters) for task in tasks)
    assert len({tuple(task.parameters.items()) for task in tasks}) == len(tasks)


def test_the_page_says_what_is_counted_from_what_is_committed() -> None:
    page = " ".join((ROOT / "docs" / "backtest.md").read_text(encoding="utf-8").split())
    found = score()
    known, fixed = found["known"], found["by settings fixed before"]
    share = f"{found['seen']} of {known} ({100 * found['seen'] / known:.0f} %)"
    assert f"by runs that were chosen with the list in hand | {share} |" in page
    assert (
        f"by settings that were fixed before it was opened | {fixed} of {known} ({100 * fixed / known:.0f} %) |" in page
    )
    assert f"Of {found['drawn']} releases that chance chose {found['flags']} are flagged" in page
    assert f"Median lead over the first public report: {found['median lead']:g} days" in page
    assert f"Median {found['median lead']:g} days of ten" in page
    assert len(found["leads"]) == 10


def test_the_drawn_releases_are_those_of_the_list() -> None:
    lines = (ROOT / "benchmarks" / "inputs" / "backtest-drawn.txt").read_text(encoding="utf-8").splitlines()
    drawn = read_drawn()
    assert {one for name in ("fourth", "fifth") for one in drawn[name]} == {*lines}
    assert not {*drawn["sixth"]} & {*lines}, "anew"
