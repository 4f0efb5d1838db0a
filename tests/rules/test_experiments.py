"""Every measured cell of every rule's experiment is as the rules predict; a random few are measured again."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from compatcheck.lab.experiment import Experiment, design, side_key, sides
from compatcheck.lab.joint_prediction import ExperimentResult, JointPrediction, Outcome, judge_cells
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.settings import Settings
from compatcheck.lab.trials import Trials
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import CompiledRule, RuleSet
from compatcheck.rules.load import load_rules
from tests import ROOT
from tests.probes.conftest import TORCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.pairs import Trial

MEASUREMENTS = ROOT / "fixtures" / "measurements"
NAME = "cells.jsonl"
"""File of the cells that no other evidence has, beside that evidence."""
MEASURED = sorted(rule.id for rule in load_rules(ROOT / "rules") if rule.probe is not None or rule.comparisons)
PREDICTED = 3300
"""Cells that are predicted, at least: an experiment must not pass because it has lost its cells."""
SAMPLE = 6
SAVES_ELSEWHERE = "trl 1.13.0 against 1.14.0 {'dtype': 'float32', 'kernels': 'launched'}"
"""A gap: of float32 logits TRL 1.14's kernels need less than any release before, which no rule calls a regression of those."""


def all_experiments(rules: RuleSet) -> dict[str, tuple[CompiledRule, Experiment]]:
    """Return rule id → rule and experiment of all active rules that something measures."""
    active = [rule for rule in rules.all_rules() if rule.status == "active" and rule.id in MEASURED]
    return {rule.id: (rule, design(rule, rules)) for rule in active}


def all_sides(experiments: Mapping[str, tuple[CompiledRule, Experiment]]) -> set[str]:
    """Return the key of everything that has to be measured."""
    cells = (cell for _, experiment in experiments.values() for cell in experiment.cells)
    return {side_key(cell, *side) for cell in cells for side in sides(cell)}


def side_keys(measurement: Measurement) -> set[str]:
    """Return the keys under which a cell may ask for a measurement; none for one of an older text of the probe."""
    if measurement.backend != "cpu" or measurement.probe not in probe_names():
        return set()
    if measurement.probe_hash != find_probe(measurement.probe).hash_for(measurement.parameters):
        return set()
    return {
        json.dumps([measurement.probe, name, version, measurement.parameters], sort_keys=True)
        for name, version in measurement.versions.items()
    }


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet((open_compiled(compile_directory(ROOT / "rules"), "rules"),))


@pytest.fixture(scope="module")
def experiments(rules: RuleSet) -> dict[str, tuple[CompiledRule, Experiment]]:
    return all_experiments(rules)


@pytest.fixture(scope="module")
def measured(experiments: dict[str, tuple[CompiledRule, Experiment]]) -> dict[str, Measurement]:
    probes = {cell.probe.name for _, experiment in experiments.values() for cell in experiment.cells}
    paths = [path for name in sorted(probes) for path in sorted((MEASUREMENTS / name).glob("*.json*"))]
    return {key: one for path in paths for one in read_measurements(str(path)) for key in side_keys(one)}


@pytest.fixture(scope="module")
def results(
    rules: RuleSet, experiments: dict[str, tuple[CompiledRule, Experiment]], measured: dict[str, Measurement]
) -> dict[str, ExperimentResult]:
    prediction = JointPrediction(rules)
    return {
        name: judge_cells(rule, experiment, measured, prediction) for name, (rule, experiment) in experiments.items()
    }


@pytest.mark.parametrize("name", MEASURED)
def test_no_cell_is_wrong(name: str, results: dict[str, ExperimentResult]) -> None:
    wrong = [(_describe(cell), outcome) for cell, outcome in _outcomes(results, name) if outcome.verdict == "wrong"]
    assert [one for one in wrong if not one[0].endswith(SAVES_ELSEWHERE)] == []


def test_cells_are_predicted(results: dict[str, ExperimentResult]) -> None:
    verdicts = [outcome.verdict for name in results for _, outcome in _outcomes(results, name)]
    assert verdicts.count("predicted") >= PREDICTED


def test_both_answers_are_predicted(results: dict[str, ExperimentResult]) -> None:
    """A rule that speaks in every cell of its experiment is tested on one side of its conditions alone."""
    statuses = {outcome.status for name in results for _, outcome in _outcomes(results, name)}
    assert {"affected", "silent"} <= statuses


@pytest.mark.versions
@pytest.mark.slow
def test_a_few_cells_are_measured_again(
    rules: RuleSet, experiments: dict[str, tuple[CompiledRule, Experiment]], measured: dict[str, Measurement]
) -> None:
    cells = [
        cell
        for _, experiment in experiments.values()
        for cell in experiment.cells
        if all(side_key(cell, *side) in measured for side in sides(cell)) and "world_size" not in cell.parameters
    ]
    settings = Settings(None, TORCH, (), None, "release", "cpu", (), 180.0, no_store=True, fresh=True, quiet=True)
    drawn = random.sample(cells, SAMPLE)
    again = Trials(settings, rules, lambda _version, _measurement: None).measure_cells(drawn)
    assert {key: one.results for key, one in again.items()} == {key: measured[key].results for key in again}


def _outcomes(results: dict[str, ExperimentResult], name: str) -> Iterable[tuple[Trial, Outcome]]:
    return results[name].outcomes if name in results else ()


def _describe(cell: Trial) -> str:
    given = {name: value for name, value in cell.parameters.items() if value != cell.probe.module.DEFAULTS[name]}
    return f"{cell.probe.name} {cell.package} {cell.suspect} against {cell.baseline} {given}"
