"""A rule is affected, possible or silent, and says what would decide it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import RuleError
from compatcheck.matching.decision import Decision, decide, size
from compatcheck.rules.rule import Clause, Rule
from compatcheck.rules.syntax import parse
from tests.unit.matching.drawn_subjects import scope, stack
from tests.unit.rules.drawn_rules import rule, rule_set

ZERO, CHECKPOINTING, REENTRANT = "training.zero_stage", "training.gradient_checkpointing", "training.use_reentrant"


def decided(written: Rule, values: dict[str, Any] | None = None, **versions: str) -> Decision:
    rules = rule_set(written)
    compiled = next(rules.all_rules())
    return decide(compiled, scope(rules, values, stack(**(versions or {"deepspeed": "0.16.4"}))))


KNOWN = {ZERO: 3, CHECKPOINTING: True}


def test_all_known_is_affected_and_any_false_is_silent() -> None:
    assert decided(rule(), KNOWN) == decided(rule(), KNOWN)._replace(status="affected", needs=())
    assert decided(rule(), {**KNOWN, ZERO: 2}).status == "silent"
    assert decided(rule(), {ZERO: 2}).status == "silent"
    assert decided(rule(), KNOWN, deepspeed="0.16.8").status == "silent"
    assert decided(rule(), KNOWN, torch="2.8").status == "silent"


def test_unknown_facts_are_needs_sorted() -> None:
    assert decided(rule()).needs == (CHECKPOINTING, ZERO)
    assert decided(rule(), {ZERO: 3}).needs == (CHECKPOINTING,)


@pytest.mark.parametrize(
    ("version", "part"),
    [
        ("0.16.8rc1", "pre-release"),
        (">=0.15", "affected and unaffected"),
        ("local-build", "not a version that can be compared"),
    ],
)
def test_an_uncertain_release_is_possible_and_says_why(version: str, part: str) -> None:
    decision = decided(rule(), KNOWN, deepspeed=version)
    assert decision.status == "possible"
    assert decision.needs == ("version of deepspeed",)
    assert part in decision.assumptions[0]


def test_a_requirement_that_several_alternatives_hold_together_is_affected() -> None:
    """Which release it is need not be known: each that is allowed is in one of them."""
    written = rule(
        clauses=(
            Clause(packages={"deepspeed": "<0.16.0", "torch": "<2.9"}, when=None),
            Clause(packages={"deepspeed": ">=0.16.0", "torch": "<2.10"}, when=None),
        )
    )
    assert decided(written, KNOWN, deepspeed=">=0.15", torch="2.8").status == "affected"
    assert decided(written, KNOWN, deepspeed=">=0.15", torch="2.8").assumptions == ()
    assert decided(written, KNOWN, deepspeed=">=0.15", torch="2.9.1").needs == ("version of deepspeed",)
    assert decided(written, {ZERO: 3}, deepspeed=">=0.15", torch="2.8").needs == (CHECKPOINTING,)


def test_an_exception_silences_only_when_it_holds() -> None:
    written = rule(unless="hardware.world_size == 1")
    assert decided(written, {**KNOWN, "hardware.world_size": 1}).status == "silent"
    assert decided(written, {**KNOWN, "hardware.world_size": 8}).assumptions == ()
    open_case = decided(written, KNOWN)
    assert open_case.status == "possible"
    assert open_case.needs == ("hardware.world_size",)


def test_only_what_no_file_states_is_taken_for_granted() -> None:
    mixed = rule(unless="training.packing or run.outputs_kept or env('A') == '1'")
    open_case = decided(mixed, {**KNOWN, "training.packing": False})
    assert open_case.status == "affected"
    assert open_case.assumptions == ("run.outputs_kept is false", "the variable A is not 1")
    assert decided(mixed, KNOWN).needs == ("training.packing",)
    together = rule(unless="run.outputs_kept and training.packing")
    assert decided(together, KNOWN).needs == ("run.outputs_kept", "training.packing")


@pytest.mark.parametrize(
    ("unless", "said"),
    [
        ("training.zero_stage == 3 and run.outputs_kept", "run.outputs_kept is false"),
        ("(run.outputs_kept if declared('training.zero_stage') else True)", "run.outputs_kept is false"),
        (
            "env('A') in {'1', 'y'} and run.outputs_kept",
            "the variable A is none of 1 or y or run.outputs_kept is false",
        ),
        ("not (training.zero_stage == 3 and runtime.torch_build == 'rocm')", "runtime.torch_build is rocm"),
    ],
)
def test_of_an_exception_only_what_is_open_is_said(unless: str, said: str) -> None:
    decision = decided(rule(unless=unless), KNOWN)
    assert decision.assumptions == (said,)


def test_the_clause_that_is_nearest_to_decided_is_shown() -> None:
    written = rule(
        clauses=(
            Clause(packages={"deepspeed": ">=0.16"}, when="training.packing and training.compile"),
            Clause(packages={"torch": ">=2"}, when="training.packing"),
        ),
        when="training.zero_stage == 3",
    )
    decision = decided(written, {ZERO: 3}, deepspeed="0.16.4", torch="2.8")
    assert decision.needs == ("training.packing",)
    assert decision.packages == ("torch",)
    both = decided(written, {ZERO: 3, "training.packing": True}, deepspeed="0.16.4", torch="2.8")
    assert both.status == "affected"
    assert both.packages == ("torch",)


def test_releases_between_checked_ones_are_only_possible() -> None:
    written = rule(
        clauses=(Clause(packages={"deepspeed": ">=0.16.2,<0.16.8"}),), unverified={"deepspeed": ">=0.16.0,<0.16.2"}
    )
    decision = decided(written, KNOWN, deepspeed="0.16.1")
    assert decision.status == "possible"
    assert "not checked" in decision.assumptions[0]
    assert decided(written, KNOWN, deepspeed="0.16.4").status == "affected"
    assert decided(written, KNOWN, deepspeed="0.15.4").status == "silent"


def test_a_rule_about_no_package() -> None:
    written = rule(clauses=(Clause(packages={}),))
    assert decided(written, KNOWN, torch="1").status == "affected"


CHOICES = {ZERO: (0, 3), CHECKPOINTING: (True, False), REENTRANT: (True, False), "hardware.world_size": (1, 8)}
FULL = rule(when=f"{ZERO} == 3 and ({CHECKPOINTING} or not {REENTRANT})", unless="hardware.world_size == 1")
FULL_RULES = rule_set(FULL)
COMPILED = next(FULL_RULES.all_rules())


@settings(max_examples=150)
@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(choice) for name, choice in CHOICES.items()}))
def test_a_certain_outcome_holds_for_every_completion(known: dict[str, Any]) -> None:
    here = decide(COMPILED, scope(FULL_RULES, known))
    missing = [name for name in CHOICES if name not in known]
    outcomes = set()
    for values in itertools.product(*(CHOICES[name] for name in missing)):
        full = {**known, **dict(zip(missing, values, strict=True))}
        complete = decide(COMPILED, scope(FULL_RULES, full))
        assert complete.status in {"affected", "silent"}
        outcomes.add(complete.status)
    if here.status != "possible":
        assert outcomes <= {here.status}
    else:
        filled = known
        while here.status == "possible":  # exceptions are asked about once the conditions hold
            assert here.needs
            assert not set(here.needs) & set(filled)
            filled = {**filled, **{name: CHOICES[name][0] for name in here.needs}}
            here = decide(COMPILED, scope(FULL_RULES, filled))


def test_sizes() -> None:
    rules = rule_set(rule())
    code = parse("dtype_bytes(training.param_dtype) * model.parameters / 3")
    known = {"training.param_dtype": "bfloat16", "model.parameters": 10}
    assert size(code, scope(rules, known)) == (7, ())
    assert size(code, scope(rules)) == (None, ("model.parameters", "training.param_dtype"))
    assert size(None, scope(rules)) == (None, ())


@pytest.mark.parametrize(
    "text", ["training.peft", "model.name", "training.packing", "1e18 * 1e18 ** 17 * 1e18", "env('A')"]
)
def test_what_is_no_size_is_a_rule_error(text: str) -> None:
    rules = rule_set(rule())
    values = {"training.peft": None, "model.name": "m", "training.packing": True}
    environment = stack(deepspeed="1")._replace(variables={"A": "1"})
    with pytest.raises(RuleError):
        size(parse(text), scope(rules, values, environment))
