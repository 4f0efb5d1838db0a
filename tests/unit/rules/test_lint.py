"""The linter reports every problem of a rule at once and never stops at the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatcheck.rules.lint import lint_rule
from compatcheck.rules.rule import Clause, Examples, Rule
from tests import ROOT
from tests.unit.rules.drawn_rules import RELEASES, rule

PACKAGES = ("deepspeed",)


def lint(made: Rule, truth: Any = None) -> list[str]:
    def releases(name: str) -> tuple[str, ...]:
        return tuple(RELEASES["releases/deepspeed"]) if name in PACKAGES else ()

    def nothing(_text: str, _example: Mapping[str, Any]) -> bool | None:
        return None

    return [
        f"{problem.source.key}: {problem.message}"
        for problem in lint_rule(made, releases, truth or nothing, ROOT, None)
    ]


def test_several_slips_are_all_told() -> None:
    made = rule(
        when="training.zero_stgae == ", unless="1", clauses=(Clause(packages={"deepspeed": "0.16"}),), title="x" * 90
    )
    keys = [problem.partition(":")[0] for problem in lint(made)]
    assert {"when", "unless", "affected.deepspeed", "title"} <= set(keys)


def test_boundaries_are_those_of_the_union_of_the_clauses() -> None:
    clauses = (Clause(packages={"deepspeed": ">=0.16.0,<0.16.4"}), Clause(packages={"deepspeed": ">=0.16.4,<0.16.8"}))
    problems = [problem for problem in lint(rule(clauses=clauses, when=None)) if problem.startswith("examples")]
    told = {problem.split(" at deepspeed ")[1].split(",")[0] for problem in problems}
    assert told == {"0.15.9", "0.16.0", "0.16.7", "0.16.8"}


def test_an_unverified_side_needs_no_example() -> None:
    made = rule(unverified={"deepspeed": ">=0.15.5,<0.16"}, when=None)
    assert not any("0.15.9" in problem for problem in lint(made))


def test_packages_without_a_snapshot_and_presence_have_no_boundaries() -> None:
    clauses = (Clause(packages={"torch": ">=2.8,<2.9", "deepspeed": "present", "apex": "absent"}),)
    assert lint(rule(clauses=clauses, when=None)) == []


def test_an_atom_counts_only_when_it_alone_is_false() -> None:
    examples = Examples(no_match=({"a": False, "b": False}, {"a": False, "b": None}, {"a": True, "b": False}))
    atoms = {"training.packing": "a", "training.compile": "b"}
    made = rule(when="training.packing and training.compile", clauses=(Clause(packages={}),), examples=examples)
    problems = lint(made, lambda text, example: example[atoms[text]])
    assert problems == ["examples.no_match: no no_match in which only `training.packing` is false"]


def test_a_measured_rule_needs_evidence() -> None:
    assert "evidence: `confidence: measured` needs evidence" in lint(rule(confidence="measured"))
