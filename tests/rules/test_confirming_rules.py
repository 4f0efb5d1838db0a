"""What `confirm` measures for a rule is a run the rule is about, against one it is not, and its own evidence confirms it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.errors import UsageError
from compatcheck.lab.confirm import judge, predicted_sizes
from compatcheck.lab.confirmation import Confirmation
from compatcheck.lab.measured_here import concerns
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.pairs import Trial, TrialRequest, plan
from compatcheck.lab.probes.metric_facts import metric_facts
from compatcheck.lab.proof import as_example
from compatcheck.matching.decision import AFFECTED, SILENT, decide
from compatcheck.matching.examples import example_scope
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import CompiledRule, RuleSet
from compatcheck.rules.load import load_rules
from compatcheck.rules.measured import selects
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.measurement import Measurement
    from compatcheck.rules.rule import Comparison, EvidenceSelection, Rule


RULES = {rule.id: rule for rule in load_rules(ROOT / "rules") if rule.probe is not None}
WITH_PAIRS = sorted(name for name, rule in RULES.items() if rule.comparisons)
LOSS_SHIFT = "transformers/loss-shift-copies-logits"


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet((open_compiled(compile_directory(ROOT / "rules"), "rules"),))


@pytest.fixture(scope="module")
def compiled(rules: RuleSet) -> dict[str, CompiledRule]:
    return {rule.id: rule for rule in rules.all_rules()}


def make(rule: CompiledRule, rules: RuleSet, **request: Any) -> Trial | Confirmation:
    return plan(rule, rules.texts(rule), rules, TrialRequest(**request))


def status(rule: CompiledRule, trial: Trial, parameters: Mapping[str, Any], release: str, rules: RuleSet) -> set[str]:
    """Decide the rule over one side, with the facts of the evidence and without."""
    facts = metric_facts(trial.probe, parameters, trial.metric)
    versions = {**trial.versions, trial.package: release}
    scopes = (example_scope(as_example(each, versions), rules, "side") for each in (facts, {**facts, **trial.facts}))
    return {decide(rule, scope).status for scope in scopes}


def test_there_are_pairs() -> None:
    assert len(WITH_PAIRS) >= 43


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_with_a_probe_has_a_plan(name: str, rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    assert isinstance(make(compiled[name], rules), Trial)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_plan_is_about_the_rule_on_one_side_only(
    name: str, rules: RuleSet, compiled: dict[str, CompiledRule]
) -> None:
    rule, trial = compiled[name], make(compiled[name], rules)
    assert isinstance(trial, Trial)
    assert status(rule, trial, trial.parameters, trial.suspect, rules) - {SILENT}
    if trial.baseline is None:
        return
    healthy = status(rule, trial, trial.baseline_parameters, trial.baseline, rules)
    if trial.parameters == trial.baseline_parameters:
        assert healthy == {SILENT}
    elif name in WITH_PAIRS:  # a setting that tells the sides apart may have no name in the vocabulary
        assert AFFECTED not in healthy


def committed(rule: Rule, trial: Trial) -> tuple[Measurement, Measurement | None]:
    """Return the measurements of the evidence pair that a trial would measure again."""
    for comparison in rule.comparisons:
        suspect, baseline = sides(comparison)
        if (
            suspect.probe == trial.probe.name
            and trial.metric == comparison.metric
            and suspect.versions[trial.package] == trial.suspect
            and trial.probe.complete(suspect.parameters) == trial.parameters
            and (baseline.versions[trial.package] if baseline else None) == trial.baseline
            and (baseline is None or trial.probe.complete(baseline.parameters) == trial.baseline_parameters)
        ):
            return suspect, baseline
    pytest.fail(f"{rule.id}: the plan is none of its evidence pairs")


def sides(comparison: Comparison) -> tuple[Measurement, Measurement | None]:
    return find(comparison.suspect), None if comparison.baseline is None else find(comparison.baseline)


def find(selection: EvidenceSelection) -> Measurement:
    (found,) = (
        one for one in read_measurements(str(ROOT / selection.file)) if selects(selection, one.versions, one.parameters)
    )
    return found


@pytest.mark.parametrize("name", WITH_PAIRS)
def test_committed_evidence_confirms_its_rule(name: str, rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    trial = make(compiled[name], rules)
    assert isinstance(trial, Trial)
    found = judge(compiled[name], trial, *committed(RULES[name], trial), rules)
    assert found.verdict == "confirmed", found.reason


def test_sides_that_are_the_same_refute(rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    name = "deepspeed/zero3-params-kept-in-backward"
    trial = make(compiled[name], rules)
    assert isinstance(trial, Trial)
    suspect, baseline = committed(RULES[name], trial)
    assert baseline is not None
    healed = replace(suspect, results=baseline.results, phases=baseline.phases)
    assert judge(compiled[name], trial, healed, baseline, rules).verdict == "refuted"


def test_a_run_the_rule_is_not_about_is_not_judged(rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    name = "transformers/falcon-mask-always-materialised"
    trial = make(compiled[name], rules)
    assert isinstance(trial, Trial)
    suspect, baseline = committed(RULES[name], trial)
    other = trial._replace(parameters={**trial.parameters, "model_type": "llama"}, baseline_parameters=trial.parameters)
    found = judge(compiled[name], other, suspect, baseline, rules)
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("the run is not one the rule is about, because")
    assert "model.model_type is llama" in found.reason


def test_a_measurement_of_the_run_without_checkpointing_concerns_a_rule_about_that(
    rules: RuleSet, compiled: dict[str, CompiledRule]
) -> None:
    name = "transformers/attention-output-kept-twice"
    trial = make(compiled[name], rules)
    assert isinstance(trial, Trial)
    suspect, _ = committed(RULES[name], trial)
    assert concerns(suspect, trial.probe, compiled[name], rules, trial.metric)
    assert not concerns(suspect, trial.probe, compiled[name], rules)


def test_a_parameter_chooses_the_pair_that_has_it(rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    trial = make(compiled[LOSS_SHIFT], rules, parameters={"model_type": "mistral"})
    assert isinstance(trial, Trial)
    assert (trial.suspect, trial.baseline) == ("4.48.0", "4.47.1")
    assert trial.facts["training.micro_batch_size"] == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"suspect": "0.16.8"}, "deepspeed 0.16.8 is outside"),
        ({"baseline": "0.16.3"}, "the rule is about deepspeed 0.16.3 as well"),
    ],
)
def test_a_release_of_the_wrong_side_is_refused(
    request_: dict[str, str], message: str, rules: RuleSet, compiled: dict[str, CompiledRule]
) -> None:
    with pytest.raises(UsageError, match=message):
        make(compiled["deepspeed/zero3-params-kept-in-backward"], rules, **request_)


def test_a_healthy_release_chooses_the_pair_it_is_healthy_for(
    rules: RuleSet, compiled: dict[str, CompiledRule]
) -> None:
    trial = make(compiled[LOSS_SHIFT], rules, baseline="4.47.1")
    assert isinstance(trial, Trial)
    assert (trial.parameters["model_type"], trial.suspect) == ("granite", "4.48.0")


def test_a_parameter_that_no_clause_is_about_decides_nothing(rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    found = make(compiled["transformers/latent-attention-cache-expanded"], rules, parameters={"model_type": "llama"})
    assert isinstance(found, Confirmation)
    assert found.verdict == "inconclusive"


def test_a_quantity_of_another_unit_is_not_set_beside_bytes(rules: RuleSet, compiled: dict[str, CompiledRule]) -> None:
    trial = make(compiled[LOSS_SHIFT], rules, parameters={"model_type": "mistral"})
    assert isinstance(trial, Trial)
    suspect, _ = committed(RULES[LOSS_SHIFT], trial)
    assert predicted_sizes(compiled[LOSS_SHIFT], trial, suspect, rules) == (2, 2, 2)
    assert predicted_sizes(compiled[LOSS_SHIFT], trial._replace(facts={}), suspect, rules) == (None, None, None)
