"""Rules that a probe on a GPU would confirm: the run is one they are about, and `confirm` can plan it."""

from __future__ import annotations

import pytest

from compatcheck.lab.measured_here import concerns
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.pairs import Trial, plan
from compatcheck.lab.probes.probe import find_probe
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.load import load_rule, rule_files
from tests import ROOT

RULES = [load_rule(path, ROOT / "rules") for path in rule_files(ROOT / "rules")]
NEEDING_CUDA = [rule for rule in RULES if rule.probe and find_probe(rule.probe.name).module.BACKENDS == ("cuda",)]


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet((open_compiled(compile_directory(ROOT / "rules"), "rules"),))


def test_there_are_some() -> None:
    assert len(NEEDING_CUDA) >= 13


@pytest.mark.parametrize("rule", NEEDING_CUDA, ids=lambda rule: rule.id)
def test_the_run_of_the_probe_is_one_the_rule_is_about(rule, rules: RuleSet) -> None:
    compiled = next(one for one in rules.all_rules() if one.id == rule.id)
    trial = plan(compiled, rules.texts(compiled), rules)
    assert isinstance(trial, Trial)
    measurement = Measurement(
        probe=trial.probe.name,
        probe_hash=trial.probe.hash_for(trial.parameters),
        backend="cuda",
        accounting="cuda",
        parameters=trial.parameters,
        versions={name: str(version) for name, version in rule.examples.match[0]["packages"].items()},
        device="a GPU",
        status="ok",
    )
    assert concerns(measurement, trial.probe, compiled, rules)
    assert "cuda" in rule.verifiable
