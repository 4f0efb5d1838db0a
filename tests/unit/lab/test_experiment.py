"""The cells of an experiment lie on both sides of what the rule asks for, and hidden ones are left out."""

from __future__ import annotations

import pytest

from compatcheck.lab.experiment import Experiment, design, side_key, sides
from compatcheck.lab.joint_prediction import JointPrediction
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.fingerprint import hash_code
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.expression import literals, ranges
from compatcheck.rules.syntax import parse
from tests import ROOT


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet((open_compiled(compile_directory(ROOT / "rules"), "rules"),))


def _design(name: str, rules: RuleSet) -> Experiment:
    rule = rules.find(name)
    assert rule is not None
    return design(rule, rules)


def test_both_sides_of_conditions_and_boundaries_are_tried(rules: RuleSet) -> None:
    cells = _design("trl/grpo-divides-logits-in-place", rules).cells
    assert {"bfloat16", "float32"} <= {cell.parameters["dtype"] for cell in cells}
    assert {1, 2, 8} <= {cell.parameters["batch"] for cell in cells}
    assert {"0.29.1", "1.0.0", "1.9.2", "1.10.0", "1.14.0"} <= {cell.suspect for cell in cells}


def test_each_cell_is_compared_with_the_same_run(rules: RuleSet) -> None:
    for cell in _design("peft/dora-saves-a-weight-copy", rules).cells:
        if cell.baseline == cell.suspect:
            apart = {name for name, value in cell.parameters.items() if cell.baseline_parameters[name] != value}
            assert apart <= {"autocast_adapter_dtype"}
        else:
            assert cell.baseline_parameters == cell.parameters


def test_what_no_parameter_varies_is_said(rules: RuleSet) -> None:
    untried = _design("trl/grpo-divides-logits-in-place", rules).untried
    assert any("training.use_liger_kernel" in one for one in untried)


def test_runs_that_the_metric_does_not_show_are_left_out(rules: RuleSet) -> None:
    experiment = _design("transformers/sliding-mask-copied-per-layer", rules)
    assert not any(cell.parameters["checkpointing"] for cell in experiment.cells)
    assert not any(cell.parameters["mask"] == "padding" and cell.parameters["batch"] == 1 for cell in experiment.cells)
    assert any(one.startswith("checkpointing: ") for one in experiment.untried)


@pytest.mark.parametrize(("factor", "verdict"), [(8, "predicted"), (4, "wrong")])
def test_a_cell_must_hold_what_the_rules_say(factor: int, verdict: str, rules: RuleSet) -> None:
    rule = rules.find("trl/grpo-divides-logits-in-place")
    assert rule is not None
    cell = next(
        cell
        for cell in design(rule, rules).cells
        if cell.suspect == "1.0.0" and (cell.parameters["dtype"], cell.parameters["batch"]) == ("bfloat16", 8)
    )
    logits = cell.parameters["vocab"] * 8 * cell.parameters["completion"]
    measured = [
        Measurement(
            probe=cell.probe.name,
            probe_hash=cell.probe.hash_for(parameters),
            backend="cpu",
            accounting="storages",
            parameters=parameters,
            versions={"trl": release, "transformers": "4.57.6", "torch": "2.13.0"},
            device="cpu",
            status="ok",
            results={cell.metric: each * logits},
        )
        for (release, parameters), each in zip(sides(cell), (factor, 4), strict=True)
    ]
    outcome = JointPrediction(rules).judge(rule, cell, *measured)
    assert (outcome.verdict, outcome.status) == (verdict, "affected")


def test_sides_are_told_apart(rules: RuleSet) -> None:
    cell = _design("trl/grpo-divides-logits-in-place", rules).cells[0]
    assert len({side_key(cell, *side) for side in sides(cell)}) == len(set(map(str, sides(cell))))


def test_literals_are_those_of_comparisons() -> None:
    code = parse("model.model_type in {'a', 'b'} and training.micro_batch_size > 1 and 6 * model.hidden_size < 7")
    assert list(literals(code)) == [
        ("model.model_type", "a"),
        ("model.model_type", "b"),
        ("training.micro_batch_size", 1),
    ]


def test_ranges_are_those_of_installed_packages() -> None:
    assert [name for name, _ in ranges(parse("(2 if installed('trl', '>=1.6') else 3) * model.vocab_size"))] == ["trl"]


def test_what_is_varied_orphans_no_evidence() -> None:
    assert hash_code(["x = 1"]) == hash_code(["VARIED = {}\nx = 1\ndef further_facts(p):\n    return {}"])
