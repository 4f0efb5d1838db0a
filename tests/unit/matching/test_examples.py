"""Examples are tests: each kind fails with a message that says what came out instead; the linter asks for the missing ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compatcheck.cli.laboratory import find_evidence_check
from compatcheck.matching.examples import check_rule, run_examples
from compatcheck.rules.rule import Clause, Examples, Impact, Remedy, Rule
from tests import ROOT
from tests.unit.rules.drawn_rules import rule, rule_set

FACTS = {"zero_stage": 3, "gradient_checkpointing": True, "param_dtype": "bfloat16"}
MODEL = {"parameters": 2**30}


def example(version: str, **changes: Any) -> dict[str, Any]:
    training = {name: value for name, value in {**FACTS, **changes}.items() if value is not None}
    return {"packages": {"deepspeed": version}, "training": training, "model": dict(MODEL)}


MATCH = {**example("0.16.0"), "impact_gib": [1.9, 2.1]}
SOUND = Examples(
    match=(MATCH, example("0.16.7")),
    no_match=(
        example("0.15.9"),
        example("0.16.8"),
        example("0.16.4", zero_stage=2),
        example("0.16.4", gradient_checkpointing=False),
    ),
    unknown=({**example("0.16.4", zero_stage=None), "needs": ["training.zero_stage"]},),
)


def problems(made: Rule) -> list[str]:
    rules = rule_set(made)
    return [
        f"{problem.source.key}: {problem.message}"
        for problem in check_rule(made, rules, ROOT, find_evidence_check(rules))
    ]


def failures(made: Rule, **examples: tuple[dict[str, Any], ...]) -> list[str]:
    rules = rule_set(made)
    return [failure.message for failure in run_examples(next(rules.all_rules()), examples, rules)]


def test_a_sound_rule_has_no_problems() -> None:
    assert problems(rule(examples=SOUND)) == []


@pytest.mark.parametrize(
    ("kind", "given", "part"),
    [
        ("match", example("0.16.8"), "expected affected, got silent"),
        ("no_match", example("0.16.4"), "expected silent, got affected"),
        ("match", example("0.16.4", zero_stage=None), "got possible (needs training.zero_stage)"),
        ("unknown", {**example("0.16.4", zero_stage=None), "needs": []}, "expected needs []"),
        ("match", {**MATCH, "impact_gib": [3, 4]}, "size 2.000 GiB is outside 3–4"),
        ("match", {**MATCH, "impact_gib": [3, 4, 5]}, "impact_gib is no list of two sizes"),
        ("match", {**MATCH, "impact_gib": ["a", 4]}, "impact_gib is no list of two sizes"),
        ("match", {**MATCH, "needs": ["a", {"b": 1}]}, "needs is no list of facts"),
        ("match", {**example("0.16.4", param_dtype=None), "impact_gib": [1, 2]}, "no size: needs training.param_dtype"),
        ("match", example("0.16.4", zero_stgae=3), "training.zero_stgae is not in the vocabulary"),
        ("match", example("0.16.4", zero_stage=9), "zero_stage"),
        ("match", {"packages": {"deepspeed": 0.16}}, "quoted"),
    ],
)
def test_an_example_that_fails_says_how(kind: str, given: dict[str, Any], part: str) -> None:
    (message,) = failures(rule(), **{kind: (given,)})
    assert part in message


def without(kind: str, index: int) -> Examples:
    parts = {name: list(getattr(SOUND, name)) for name in ("match", "no_match", "unknown")}
    del parts[kind][index]
    return Examples(**{name: tuple(entries) for name, entries in parts.items()})


@pytest.mark.parametrize(
    ("kind", "index", "part"),
    [
        ("match", 0, "no match at deepspeed 0.16.0"),
        ("match", 1, "no match at deepspeed 0.16.7"),
        ("no_match", 0, "no no_match at deepspeed 0.15.9"),
        ("no_match", 1, "no no_match at deepspeed 0.16.8"),
        ("no_match", 2, "only `training.zero_stage == 3` is false"),
        ("no_match", 3, "only `training.gradient_checkpointing` is false"),
    ],
)
def test_each_boundary_and_each_atom_needs_its_example(kind: str, index: int, part: str) -> None:
    (problem,) = problems(rule(examples=without(kind, index)))
    assert part in problem


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"unless": "training.zero_stage"}, "unless: "),
        (
            {"clauses": (Clause(packages={"deepspeed": ">=9,<10"}),)},
            "affected.deepspeed: >=9,<10 holds no known release",
        ),
        ({"clauses": (Clause(packages={"deepspeed": ">=0.16"}),), "checked_through": {}}, "checked_through: "),
        ({"clauses": (Clause(packages={}, when="1 + 1"),)}, "affected.0.when: "),
        ({"title": "x" * 81}, "title: "),
        ({"references": ()}, "references: "),
        ({"remedies": ()}, "remedies: "),
        ({"kind": "folklore"}, "debunks: "),
        ({"debunks": ("a/b",)}, "debunks: "),
        ({"confidence": "measured"}, "evidence: "),
        (
            {"remedies": (Remedy(verb="set", target={"training.zero_stgae": 2}, safety="safe"),)},
            "remedies.0.set.training.zero_stgae: ",
        ),
        (
            {"remedies": (Remedy(verb="set", target={"training.zero_stage": 7}, safety="safe"),)},
            "remedies.0.set.training.zero_stage: ",
        ),
        (
            {"remedies": (Remedy(verb="upgrade", target={"deepspeed": "0.17"}, safety="safe"),)},
            "remedies.0.upgrade.deepspeed: ",
        ),
        (
            {
                "impact": Impact(
                    effect="memory", memory="device", scope="rank", phase="whole", expected="training.packing"
                )
            },
            "impact.bytes: ",
        ),
    ],
)
def test_static_problems_are_named_by_key(changes: dict[str, Any], place: str) -> None:
    assert any(problem.startswith(place) for problem in problems(rule(examples=SOUND, **changes))), problems(
        rule(examples=SOUND, **changes)
    )


def test_evidence_must_exist(tmp_path: Any) -> None:
    made = rule(examples=SOUND, confidence="measured", evidence=("fixtures/x.json",))
    found = check_rule(made, rule_set(made), tmp_path, find_evidence_check(rule_set(made)))
    assert [problem.source.key for problem in found] == ["evidence"]
    (tmp_path / "fixtures").mkdir()
    measured = {"probe": "a", "backend": "cpu", "device": "x86_64 CPU", "status": "ok"}
    (tmp_path / "fixtures/x.json").write_text(json.dumps(measured), encoding="utf-8")
    assert check_rule(made, rule_set(made), tmp_path, find_evidence_check(rule_set(made))) == []


def test_a_draft_needs_no_examples() -> None:
    assert problems(rule(status="draft", reason="not read yet")) == []


def note(text: str = "do without", **told: Any) -> Remedy:
    return Remedy(verb="note", target={}, safety="safe", note=text, **told)


@pytest.mark.parametrize(
    ("remedy", "part"),
    [
        (note(done={"training": {"zero_stage": 2}}), None),
        (note(unseen="it is in no file"), None),
        (note("half of it", done={"model": {"parameters": 2**29}}), None),
        (note(), "(`done`)"),
        (note(done={"training": {"packing": True}}), "still speaks of examples.match.0"),
        (note(done={"model": {"parameters": 2**29}}), "keeps 50%"),
        (note("half of it", done={"model": {"parameters": 2**29 + 1}}), "still speaks"),
        (note(done={"training": {"zero_stage": 2}}, when="training.packing"), "its condition is never true"),
        (note(done={"training": {"zero_stag": 2}}), "laid over examples.match.0"),
        (note(done={"training": 2}), "laid over examples.match.0"),
    ],
)
def test_a_note_says_what_holds_once_it_was_done(remedy: Remedy, part: str | None) -> None:
    found = problems(rule(examples=SOUND, remedies=(remedy,)))
    assert not found if part is None else any(part in problem for problem in found), found
