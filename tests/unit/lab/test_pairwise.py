from itertools import combinations, product

import pytest

from compatcheck.lab.pairwise import cover_together
from compatcheck.lab.probes.probe import find_probe

AXES = {"a": ("x", "y", "z"), "b": (1, 2), "c": (True, False), "d": (0, 1, 2)}


def pairs(rows):
    return {pair for row in rows for pair in combinations(row.items(), 2)}


def forbids(row):
    return not (row["a"] == "z" and row["b"] == 2)


def test_every_two_values_that_go_together_occur_together_in_few_rows():
    every = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())]
    rows = cover_together(AXES, forbids)
    assert all(map(forbids, rows))
    assert pairs(rows) == pairs(filter(forbids, every))
    assert 9 <= len(rows) <= 12 < len(every)  # 9 values of a and d alone


def test_the_most_usual_row_of_each_kind_comes_first():
    rows = cover_together(AXES, lambda row: row["b"] == 2 or row["a"] != "y", "a")
    assert [list(row.values()) for row in rows[:3]] == [["x", 1, True, 0], ["y", 2, True, 0], ["z", 1, True, 0]]


def test_a_single_axis_is_covered_by_its_values():
    assert cover_together({"a": ("x", "y")}, lambda _row: True) == [{"a": "x"}, {"a": "y"}]


@pytest.mark.parametrize(("package", "most"), [("trl", 30), ("peft", 35), ("accelerate", 40), ("deepspeed", 25)])
def test_the_matrix_of_whole_runs_is_thin_and_uses_the_package(package, most):
    probe = find_probe("whole_run")
    rows = probe.matrix(package, {})
    assert all(package in probe.needs(row) for row in rows)
    assert all(probe.module.is_sensible({**probe.module.DEFAULTS, **row}) for row in rows)
    assert len(rows) <= most


def test_values_of_a_persons_own_narrow_the_matrix():
    rows = find_probe("whole_run").matrix("trl", {"trainer": ["sft"], "dtype": ["float32"], "adapter": ["none"]})
    assert {(row["trainer"], row["dtype"], row["adapter"]) for row in rows} == {("sft", "float32", "none")}
    assert {(row["data"], row["precision"]) for row in rows} == {
        (data, precision) for data in ("padded", "packed") for precision in ("default", "no", "bf16")
    }


def test_a_probe_without_kinds_of_runs_is_one_row_where_it_uses_the_package():
    assert find_probe("masks").matrix("transformers", {}) == [{}]
    assert find_probe("masks").matrix("trl", {}) == []
