"""Numbers over releases behind a rule: of one setting alone, the oldest release first, and the same that the laboratory reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.lab.measurement_files import read_measurements
from compatcheck.rules.load import load_rules
from compatcheck.rules.measured import read_series, selects
from compatcheck.rules.rule import Comparison, EvidenceSelection
from tests import ROOT
from tests.unit.rules.drawn_rules import rule

RULES = [one for one in load_rules(ROOT / "rules") if one.comparisons]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    common = {
        "probe": "p",
        "backend": "cpu",
        "status": "ok",
        "parameters": {"layers": 4},
        "versions": {"torch": "2.6.0"},
    }
    lines = [{"compatcheck_measurements": 1, "common": common}]
    for release, kept, layers in (("1.10", 8, 4), ("1.9", 4, 4), ("1.9", 99, 5), ("2.0", 4, 4)):
        lines.append({"results": {"kept_bytes": kept}, "parameters": {"layers": layers}, "versions": {"x": release}})
    lines.append({"status": "failed", "results": {}, "versions": {"x": "1.11"}})
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return tmp_path


def compare(suspect: str, baseline: str | None, **parameters: int) -> Comparison:
    bad, good = (
        release and EvidenceSelection(file="m.jsonl", versions={"x": release}, parameters=parameters)
        for release in (suspect, baseline)
    )
    return Comparison(metric="kept_bytes", suspect=bad, baseline=good, facts={})


def test_releases_of_one_setting_come_in_their_order(root: Path) -> None:
    series = read_series(rule(comparisons=(compare("1.10", "1.9", layers=4),)), root)
    assert series == {
        "package": "x", "metric": "kept_bytes", "probe": "p", "backend": "cpu", "parameters": {"layers": 4},
        "points": [["1.9", 4], ["1.10", 8], ["2.0", 4]],
    }  # fmt: skip


@pytest.mark.parametrize("comparison", [compare("1.10", None), compare("1.9", "1.9"), compare("3.0", "1.9")])
def test_what_compares_no_releases_that_were_measured_has_no_series(root: Path, comparison: Comparison) -> None:
    assert read_series(rule(comparisons=(comparison,)), root) is None


def test_missing_measurements_give_no_series(tmp_path: Path) -> None:
    assert read_series(rule(comparisons=(compare("1.10", "1.9"),)), tmp_path) is None


@pytest.mark.parametrize("one", RULES, ids=lambda one: one.id)
def test_numbers_are_those_that_the_laboratory_reads(one) -> None:
    series = read_series(one, ROOT)
    if series is None:
        return
    points = dict(series["points"])
    package, metric = series["package"], series["metric"]
    pairs = [
        (pair.suspect, pair.baseline)
        for pair in one.comparisons
        if pair.baseline is not None and (pair.suspect.metric or pair.metric) == metric
        and dict(pair.suspect.parameters) == dict(pair.baseline.parameters)
    ]  # fmt: skip
    suspect, baseline = next(pair for pair in pairs if {one.versions.get(package) for one in pair} <= set(points))
    for selection in (suspect, baseline):
        measured = read_measurements(str(ROOT / selection.file))
        (found,) = (one for one in measured if selects(selection, one.versions, one.parameters))
        assert points[selection.versions[package]] == found.metric(metric)
