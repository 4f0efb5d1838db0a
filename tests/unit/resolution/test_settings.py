"""What ``--set`` states for each role of a job."""

from __future__ import annotations

import pytest

from compatcheck.checking import Request, gather
from compatcheck.core.facts import Value
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve_with
from compatcheck.resolution.settings import settings_of
from compatcheck.rules.locate import open_rules
from tests import ROOT

HERE = Source("--set")


def own(role: str, **stated: Value) -> dict[str, Value]:
    settings = {name.replace("__", "."): (value, HERE) for name, value in stated.items()}
    return {name: value for name, (value, _) in settings_of(role, settings).items()}


@pytest.mark.parametrize("role", ["train", "actor", "critic", "rollout"])
def test_a_trained_role_takes_everything(role: str) -> None:
    stated: dict[str, Value] = {"training__micro_batch_size": 4, "rollout__log_prob_micro_batch_size": 8}
    assert own(role, **stated) == {"training.micro_batch_size": 4, "rollout.log_prob_micro_batch_size": 8}


@pytest.mark.parametrize("role", ["reference", "reward"])
def test_a_frozen_role_scores_and_has_no_optimizer(role: str) -> None:
    assert own(role, training__micro_batch_size=4, training__offload_optimizer="cpu", training__peft="lora") == {}
    scoring = own(role, rollout__log_prob_micro_batch_size=8, training__micro_batch_size=4)
    assert scoring["training.micro_batch_size"] == 8


@pytest.mark.parametrize("role", ["actor", "reference"])
def test_what_is_about_the_whole_job_holds_for_each_role(role: str) -> None:
    stated: dict[str, Value] = {"hardware__world_size": 8, "training__zero_stage": 3, "training__sequence_length": 512}
    assert len(own(role, **stated)) == len(stated)


def test_a_shorter_completion_makes_every_sequence_of_the_job_shorter() -> None:
    rules = open_rules(())
    case = str(ROOT / "fixtures" / "cases" / "logic-rl-n32" / "facts.yaml")
    (subject,) = gather(Request(paths=(case,)), rules, {}).subjects
    changed = resolve_with(subject, {"training.max_response_length": 256}, rules)
    for role, facts in changed.roles.items():
        before = subject.roles[role].get("training.sequence_length")
        if before is not None and "training.max_response_length" in facts:
            assert facts["training.max_response_length"].value == 256
