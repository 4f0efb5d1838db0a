from __future__ import annotations

import pytest

from compatcheck.core.estimate import Component, Estimate, Least, Phase, Verdict, exactly, say_outcome
from compatcheck.core.report import Finding, FindingImpact
from compatcheck.memory.regressions import ADDED, COUNTED, GATHERED, find_deciding, find_turning, lay_over, with_phases
from tests import ROOT

GIB = 2**30
RULES = ROOT / "rules"
PHASES = tuple(
    Phase(name, "train", (Component("x", "activations", exactly(size * GIB), "", ""),))
    for name, size in (("forward", 10), ("backward", 20))
)


def make_estimate(limit: int | None = 25, outcome: str = "fits") -> Estimate:
    bytes_ = None if limit is None else limit * GIB
    return Estimate("closed_form", PHASES, Verdict(outcome, bytes_, None if limit is None else (limit - 20) * GIB))


def make_finding(gib: int, phase: str, **changed: object) -> Finding:
    impact = FindingImpact(gib * GIB, gib * GIB, gib * GIB, "memory", "device", "rank", phase)
    fields: dict[str, object] = {
        "rule_id": "some/rule",
        "subject": "s",
        "role": "train",
        "kind": "regression",
        "title": "",
        "status": "affected",
        "severity": "high",
        "confidence": "certain",
        "message": "",
        "impact": impact,
        "needs": (),
        "assumptions": (),
        "facts": (),
        "locations": (),
        "remedies": (),
        "references": (),
    }
    return Finding(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("findings", "expected", "outcome"),
    [
        ([make_finding(4, "forward")], 24, "fits"),
        ([make_finding(8, "forward")], 28, "does_not_fit"),
        ([make_finding(8, "step")], 20, "fits"),
        ([make_finding(8, "backward")], 28, "does_not_fit"),
        ([make_finding(4, "whole"), make_finding(2, "backward")], 26, "does_not_fit"),
        ([make_finding(900, "load")], 20, "fits"),
        ([make_finding(8, "asleep")], 28, "does_not_fit"),
    ],
)
def test_bytes_are_added_to_the_phase_they_are_taken_in(findings: list[Finding], expected: int, outcome: str) -> None:
    found = lay_over(make_estimate(), findings)
    assert (found.needed.expected, found.verdict.outcome) == (expected * GIB, outcome)
    assert found.without == make_estimate()


@pytest.mark.parametrize(
    "changed", [{"kind": "pitfall"}, {"status": "possible"}, {"rule_id": "trl/dpo-keeps-reference-logits"}]
)
def test_what_is_not_certain_or_counted_already_is_left_out(changed: dict[str, object]) -> None:
    found = lay_over(make_estimate(), [make_finding(8, "backward", **changed)])
    assert found == make_estimate()


@pytest.mark.parametrize(("needed", "outcome"), [(10, "marginal"), (18, "does_not_fit")])
def test_what_nobody_stated_is_doubted_with_a_regression_as_without_one(needed: int, outcome: str) -> None:
    clean = make_estimate()
    clean = clean._replace(verdict=clean.verdict._replace(least=Least(needed * GIB, "sequences are shorter")))
    found = lay_over(clean, [make_finding(8, "backward")])
    assert found.verdict.outcome == outcome
    assert say_outcome(found.verdict.outcome, found.verdict.unless) == (
        "does not fit unless sequences are shorter" if outcome == "marginal" else "does not fit"
    )


def test_what_passes_with_a_block_adds_what_is_beyond_the_loss() -> None:
    loss_is_higher = tuple(phase._replace(above_block=exactly(6 * GIB)) for phase in PHASES)
    estimate = make_estimate()._replace(phases=loss_is_higher)

    def needed(passing: int, *others: Finding) -> int:
        finding = make_finding(8, "backward")
        impact = finding.impact._replace(passing_bytes=passing * GIB)
        return lay_over(estimate, [finding._replace(impact=impact), *others]).needed.expected // GIB

    assert [needed(passing) for passing in (0, 4, 6, 8)] == [28, 24, 22, 22]
    second = make_finding(3, "backward", rule_id="some/other")
    also = second._replace(impact=second.impact._replace(passing_bytes=3 * GIB))
    assert needed(8, also) == 25, "both pass in the same block"


def test_nothing_decides_where_more_than_there_is_is_expected_without_it() -> None:
    clean = make_estimate(15, "marginal")
    doubted = clean._replace(verdict=clean.verdict._replace(unless="sequences are shorter"))
    assert find_deciding(lay_over(clean, [make_finding(8, "backward")]))
    assert not find_deciding(lay_over(doubted, [make_finding(8, "backward")]))


def test_what_turns_a_run_that_fits_into_one_that_may_not_is_named() -> None:
    small, large = make_finding(1, "backward", rule_id="some/small"), make_finding(80, "backward", rule_id="some/large")
    ample, tight, full = (make_estimate(limit, "fits") for limit in (200, 102, 90))
    assert find_turning(lay_over(ample, [small, large])) == ()
    turned = lay_over(tight, [small, large])
    assert (turned.verdict.outcome, find_turning(turned)) == ("marginal", ("some/large",))
    assert find_turning(lay_over(full, [large])) == (), "it does not fit"


def test_without_a_device_nothing_is_judged() -> None:
    found = lay_over(make_estimate(None, "unknown"), [make_finding(8, "backward")])
    assert found.verdict.outcome == "unknown"


def test_every_rule_that_a_formula_has_is_there() -> None:
    assert [name for name in sorted(COUNTED | ADDED) if not (RULES / f"{name}.yaml").is_file()] == []


def test_parameters_that_two_rules_keep_are_there_once() -> None:
    names = sorted(GATHERED)
    found = lay_over(make_estimate(), [make_finding(gib, "backward", rule_id=names[gib]) for gib in (1, 3, 2)])
    assert [one.rule_id for one in found.regressions] == [names[3]]
    assert found.needed.expected == 23 * GIB
    assert [name for name in names if not (RULES / f"{name}.yaml").is_file()] == []


def test_regressions_are_part_of_every_peak() -> None:
    found = lay_over(make_estimate(), [make_finding(8, "backward"), make_finding(900, "load")])
    assert found.allocated.expected == found.device.expected == 28 * GIB
    assert found.verdict.margin_bytes == -3 * GIB


def test_an_engine_alone_does_not_sleep() -> None:
    serving = tuple(phase._replace(name=name) for phase, name in zip(PHASES, ("load", "rollout"), strict=True))
    found = lay_over(make_estimate()._replace(phases=serving), [make_finding(8, "asleep")])
    assert found.needed.expected == 20 * GIB
    assert [one.adds for one in found.regressions] == [False]


def test_a_pitfall_that_no_formula_has_is_added() -> None:
    found = lay_over(make_estimate(), [make_finding(8, "backward", rule_id=min(ADDED), kind="pitfall")])
    assert found.verdict.outcome == "does_not_fit"


def deciding(*findings: Finding, limit: int = 25, outcome: str = "fits") -> set[str]:
    return {rule_id for rule_id, _ in find_deciding(lay_over(make_estimate(limit, outcome), findings))}


def test_a_regression_decides_that_makes_the_run_not_fit_by_itself() -> None:
    big, small = make_finding(8, "backward", rule_id="a/big"), make_finding(1, "backward", rule_id="a/small")
    assert deciding(big, small) == {"a/big"}


def test_regressions_that_only_together_do_not_fit_decide_both() -> None:
    assert deciding(make_finding(3, "backward", rule_id="a/one"), make_finding(4, "backward", rule_id="a/other")) == {
        "a/one",
        "a/other",
    }


def test_nothing_decides_what_fits_with_it_or_does_not_fit_without_it() -> None:
    assert not deciding(make_finding(4, "backward"))
    assert not deciding(make_finding(8, "backward"), outcome="does_not_fit")
    assert not deciding(make_finding(8, "load"))


@pytest.mark.parametrize(("size", "outcome", "margin"), [(10, "fits", 5), (24, "fits", 1), (30, "does_not_fit", -5)])
def test_a_phase_that_a_method_does_not_price_never_makes_it_better(size: int, outcome: str, margin: int) -> None:
    evaluation = Phase("evaluation", "train", (Component("x", "logits", exactly(size * GIB), "", ""),))
    found = with_phases(make_estimate(), (evaluation,))
    assert (found.verdict.outcome, found.verdict.margin_bytes) == (outcome, margin * GIB)
    assert found.phases == (*PHASES, evaluation)
    assert with_phases(make_estimate(), ()) == make_estimate()
