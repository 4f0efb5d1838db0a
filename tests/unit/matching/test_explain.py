"""An explanation shows every condition with the facts it read and how it came out."""

from __future__ import annotations

from compatcheck.matching.explain import explain
from compatcheck.rules.rule import Clause
from tests.unit.matching.drawn_subjects import stack, subject
from tests.unit.rules.drawn_rules import rule, rule_set

RANGE = {"deepspeed": ">=0.16.0,<0.16.8"}


def test_an_explanation_has_every_condition_with_its_facts_and_outcome() -> None:
    made = rule(
        clauses=(Clause(packages={**RANGE, "torch": "absent"}, when="training.packing"),),
        unless="hardware.world_size == 1",
    )
    rules = rule_set(made)
    values = {"training.zero_stage": 2, "training.packing": True, "model.parameters": 3}
    (found,) = explain(next(rules.all_rules()), subject(values), rules, lambda source: source._replace(line=7))
    assert found.decision.status == "silent"
    assert [[(entry.text, entry.outcome) for entry in alternative] for alternative in found.alternatives] == [
        [("deepspeed >=0.16.0,<0.16.8", True), ("torch absent", True), ("training.packing", True)]
    ]
    assert [(entry.text, entry.outcome, entry.missing) for entry in found.conditions] == [
        ("training.zero_stage == 3", False, ()),
        ("training.gradient_checkpointing", None, ("training.gradient_checkpointing",)),
    ]
    assert [(entry.text, entry.outcome) for entry in found.exceptions] == [("hardware.world_size == 1", None)]
    assert found.conditions[0].facts[0].sources[0].line == 7
    assert (found.expected_bytes, found.size_needs) == (None, ("training.param_dtype",))
    assert [fact.name for fact in found.size_facts] == ["model.parameters"]


def test_an_explanation_says_which_release_is_missing() -> None:
    rules = rule_set(rule())
    (found,) = explain(
        next(rules.all_rules()), subject({}, stack(complete=False, torch="2.8")), rules, lambda source: source
    )
    assert found.alternatives[0][0].outcome is None
    assert found.alternatives[0][0].missing == ("version of deepspeed",)
