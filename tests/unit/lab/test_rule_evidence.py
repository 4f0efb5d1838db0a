"""Evidence is compared with the rule's formula: the files, the selection, the release, the facts and the range."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compatcheck.core.errors import InputError, UsageError
from compatcheck.lab.measurement import Measurement, PhaseMemory
from compatcheck.lab.rule_evidence import Proof, check_evidence
from compatcheck.rules.rule import Clause, Comparison, EvidenceSelection, Impact, ProbeUse
from tests.unit.rules.drawn_rules import rule

ROOT = Path("/checkout")


def measured(version: str, live: int, status: str = "ok", **parameters: Any) -> Measurement:
    return Measurement(
        probe="release",
        probe_hash="unknown",
        backend="cpu",
        accounting="storages",
        parameters=parameters,
        versions={"deepspeed": version, "python": "3.11.7"},
        device="CPU",
        status=status,
        phases=(PhaseMemory(name="step", peak_allocated_bytes=None, live_bytes=live),),
    )


FILES = {
    "bad.json": (measured("0.16.4", 1100, config={"layers": 2}),),
    "good.json": (measured("0.16.8", 100),),
    "sweep.jsonl": (
        measured("0.16.4", 1500, layers=1),
        measured("0.16.4", 1090, layers=2),
        measured("0.16.8", 100, layers=2),
        measured("0.16.7", 0, "failed"),
    ),
}


def read(path: Path) -> tuple[Measurement, ...]:
    if path.name not in FILES:
        raise InputError("no such file")
    return FILES[path.name]


def complete(_name: str, parameters: Any) -> None:
    if "layres" in parameters:
        raise UsageError("no parameter 'layres'", hint="did you mean 'layers'?")


def sizes(formulas: Any, facts: Any, versions: Any) -> list[Any]:
    assert "deepspeed" in versions
    return [facts.get(text, (text,)) if not text.isdigit() else float(text) for text in formulas]


def holds(condition: str, _facts: Any, _versions: Any) -> bool | None:
    return {"false": False, "true": True}.get(condition)


def others(rule_id: str, _facts: Any, versions: Any) -> tuple[float, float, float]:
    if rule_id != "deepspeed/other":
        raise UsageError(f"there is no rule {rule_id!r}")
    return (400, 400, 500) if versions["deepspeed"] == "0.16.4" else (0, 0, 0)


PROOF = Proof(frozenset({"release"}), complete, read, lambda _: {"model.parameters": 1000.0}, sizes, holds, others)


def comparison(suspect: Any = "bad.json", baseline: Any = "good.json", **changes: Any) -> Comparison:
    def select(value: Any) -> Any:
        return EvidenceSelection(file=value, versions={}, parameters={}) if isinstance(value, str) else value

    values = {"metric": "step.live_bytes", "suspect": select(suspect), "baseline": select(baseline), "facts": {}}
    return Comparison(**{**values, **changes})


def problems(*comparisons: Comparison, expected: str | None = "model.parameters", **changes: Any) -> list[str]:
    impact = Impact(
        effect="memory",
        memory="device",
        scope="rank",
        phase="step",
        expected=expected,
        low=changes.pop("low", None),
        high=changes.pop("high", None),
    )
    files = {part.file for one in comparisons for part in (one.suspect, one.baseline) if part is not None}
    made = rule(impact=impact, comparisons=comparisons, evidence=tuple(sorted(files)), **changes)
    return [f"{key}: {message}" for key, message in check_evidence(made, ROOT, PROOF)]


def pick(version: str, **parameters: Any) -> EvidenceSelection:
    return EvidenceSelection(file="sweep.jsonl", versions={"deepspeed": version}, parameters=parameters)


def test_what_another_rule_says_of_both_sides_is_in_the_difference() -> None:
    both = comparison(pick("0.16.4", layers=1), pick("0.16.8"))
    assert "is 1,400 bytes" in problems(both)[0]
    assert problems(replace(both, besides=("deepspeed/other",))) == []
    assert problems(replace(both, besides=("deepspeed/none",))) == [
        "evidence: besides: there is no rule 'deepspeed/none'"
    ]
    # on the other side it is subtracted, as what the rule itself says there is
    backwards = comparison(pick("0.16.8"), pick("0.16.4", layers=1), besides=("deepspeed/other",))
    assert "the rule says -400 (" in problems(backwards)[-1]


def test_bytes_in_the_range_are_no_problem() -> None:
    assert problems(comparison()) == []
    assert problems(comparison(pick("0.16.4", layers=2), pick("0.16.8"))) == []
    itself = EvidenceSelection(file="good.json", versions={}, parameters={}, metric="step.live_bytes")
    assert problems(comparison("bad.json", itself, metric="step.live_bytes")) == []
    nested = EvidenceSelection(file="bad.json", versions={}, parameters={"config.layers": 2})
    assert problems(comparison(nested)) == []


def test_bytes_outside_of_the_range_are_told_with_all_numbers() -> None:
    (problem,) = problems(comparison(pick("0.16.4", layers=1)))
    assert problem == (
        "evidence: step.live_bytes of sweep.jsonl (deepspeed 0.16.4, layers=1) less good.json is 1,400 bytes; the rule says"
        " 1,000 (980 to 1,020)"
    )
    assert problems(comparison(pick("0.16.4", layers=1)), low="0", high="1400") == []
    assert problems(comparison(pick("0.16.4", layers=1)), low="1401") != []
    assert len(problems(comparison(baseline=None))) == 1
    assert problems(comparison(baseline=None, facts={"model.parameters": 1100.0})) == []


def test_small_tensors_are_allowed_for_where_the_lower_end_is_the_size_itself() -> None:
    assert problems(comparison(baseline=None, facts={"model.parameters": 1110.0}), low="model.parameters") == []
    assert problems(comparison(baseline=None, facts={"model.parameters": 1200.0}), low="model.parameters") != []


def test_a_rule_without_a_size_needs_only_that_more_is_held() -> None:
    assert problems(comparison(), expected=None) == []
    assert problems(comparison(), expected=None, high="1000") == []
    (problem,) = problems(comparison(), expected=None, high="999")
    assert problem.endswith("is 1,000 bytes; the rule says 999 (1 to 999)")


@pytest.mark.parametrize(
    ("one", "changes", "message"),
    [
        (comparison("nothing.json"), {}, "nothing.json cannot be read: no such file"),
        (comparison("sweep.jsonl"), {}, "sweep.jsonl selects 4 measurements"),
        (comparison(pick("0.15.4")), {}, "selects 0 measurements"),
        (comparison(pick("0.16.7")), {}, "has no step.live_bytes"),
        (comparison(metric="kept_bytes"), {}, "has no kept_bytes"),
        (comparison("good.json"), {}, "good.json was measured with deepspeed 0.16.8, which `affected` leaves out"),
        (comparison(), {"clauses": (Clause(packages={"deepspeed": "absent"}),)}, "leaves out"),
        (comparison(), {"clauses": (Clause(packages={"peft": ">=0.1"}),)}, "bad.json was measured without peft"),
        (comparison("good.json", "good.json"), {"expected": None}, "is 0 bytes: nothing is lost"),
        (
            comparison(),
            {"expected": "training.param_dtype"},
            "the size needs training.param_dtype; state them under `facts`",
        ),
    ],
)
def test_what_cannot_be_compared_is_told(one: Comparison, changes: dict[str, Any], message: str) -> None:
    assert any(message in problem for problem in problems(one, **changes)), problems(one, **changes)


def test_the_probe_must_exist_with_its_parameters() -> None:
    def told(name: str, **parameters: Any) -> list[str]:
        return problems(probe=ProbeUse(name=name, parameters=parameters))

    assert told("release", layers=4) == []
    assert told("relaese") == ["probe: there is no probe 'relaese'; `compatcheck probe list` has them all"]
    assert told("release", layres=4) == ["probe: no parameter 'layres' (did you mean 'layers'?)"]


@pytest.mark.parametrize(
    ("affected", "changes", "said"),
    [
        ("<0.16.8", {}, []),
        ("<0.17", {}, ["is 1,000 bytes; the rule says 0 (-40 to 40)"]),
        ("<0.17", {"when": "open"}, ["is 1,000 bytes; the rule says 0 (-40 to 40)"]),
        ("<0.17", {"when": "false"}, []),
        ("<0.17", {"unless": "true"}, []),
    ],
)
def test_a_baseline_of_another_release_that_the_rule_is_about_holds_its_size_too(
    affected: str, changes: dict[str, Any], said: list[str]
) -> None:
    found = problems(comparison(), clauses=(Clause(packages={"deepspeed": affected}, when=None),), **changes)
    assert [one.partition("less good.json ")[2] for one in found] == said
