"""A rule is decided once per role, and said once where roles do not differ."""

from __future__ import annotations

from typing import Any

from compatcheck.core.facts import Facts
from compatcheck.core.report import Finding
from compatcheck.core.source import Source
from compatcheck.matching.engine import match
from compatcheck.resolution.subject import Subject
from compatcheck.rules.rule import Impact
from tests.unit.matching.drawn_subjects import facts_of, stack
from tests.unit.rules.drawn_rules import rule, rule_set

KNOWN: dict[str, Any] = {
    "training.zero_stage": 3,
    "training.gradient_checkpointing": True,
    "training.param_dtype": "bfloat16",
    "model.parameters": 5 * 2**30,
}


def findings(
    phase: str = "whole",
    when: str | None = None,
    unless: str | None = None,
    size: str = "2 * model.parameters",
    **roles: dict[str, Any],
) -> list[Finding]:
    subject = Subject("s", stack(deepspeed="0.16.4"), {role: facts_of(values) for role, values in roles.items()})
    impact = Impact(effect="memory", memory="device", scope="rank", phase=phase, expected=size)
    conditions = {name: text for name, text in (("when", when), ("unless", unless)) if text is not None}
    return list(match(subject, rule_set(rule(impact=impact, **conditions))).findings)


def test_roles_with_the_same_facts_are_one_finding() -> None:
    (finding,) = findings(actor=KNOWN, critic=KNOWN)
    assert finding.role == "actor"


def test_memory_that_the_same_settings_cost_each_role_is_each_roles() -> None:
    actor = facts_of(KNOWN)
    critic = {name: fact._replace(sources=(Source("f.yaml", f"critic.{name}"),)) for name, fact in actor.items()}
    subject = Subject("s", stack(deepspeed="0.16.4"), {"actor": actor, "critic": Facts(critic)})

    def titles(effect: str) -> list[str]:
        impact = Impact(effect=effect, memory="device", scope="rank", phase="whole", expected="2 * model.parameters")
        return [finding.title for finding in match(subject, rule_set(rule(impact=impact))).findings]

    assert [title.rpartition(" ")[2] for title in titles("memory")] == ["(actor)", "(critic)"]
    assert titles("fails_to_start") == [rule().title]


def test_roles_that_differ_are_findings_of_their_own() -> None:
    smaller = {**KNOWN, "model.parameters": 2**30}
    found = {finding.role: finding.impact for finding in findings(actor=KNOWN, critic=smaller)}
    assert {role: impact and impact.expected_bytes for role, impact in found.items()} == {
        "actor": 10 * 2**30,
        "critic": 2 * 2**30,
    }
    off = {**KNOWN, "training.gradient_checkpointing": False}
    assert [finding.role for finding in findings(when="training.gradient_checkpointing", actor=off, critic=KNOWN)] == [
        "critic"
    ]


def test_a_model_that_is_only_run_forward_has_no_backward() -> None:
    smaller = {**KNOWN, "model.parameters": 2**30}
    frozen = {**smaller, "program.keeps_graph": False}
    assert [finding.role for finding in findings("backward", actor=KNOWN, reference=frozen)] == ["actor"]
    assert [finding.role for finding in findings("forward", actor=KNOWN, reference=frozen)] == ["actor", "reference"]


def test_what_a_rollout_costs_is_the_policys() -> None:
    smaller = {**KNOWN, "model.parameters": 2**30}
    roles = {"actor": KNOWN, "critic": smaller, "reference": {**smaller, "program.keeps_graph": False}}
    assert [finding.role for finding in findings("rollout", **roles)] == ["actor"]
    assert [finding.role for finding in findings("rollout", rollout=KNOWN)] == ["rollout"]


def test_what_an_engine_costs_while_it_loads_is_the_policys() -> None:
    roles = {
        "actor": {**KNOWN, "rollout.engine": "vllm"},
        "reference": {**KNOWN, "rollout.engine": "vllm", "model.parameters": 2**30, "program.keeps_graph": False},
    }
    assert [one.role for one in findings("load", when="rollout.engine == 'vllm'", **roles)] == ["actor"]
    assert [one.role for one in findings("load", when="rollout.engine in {'vllm', 'sglang'}", **roles)] == ["actor"]
    assert [one.role for one in findings("load", **roles)] == ["actor", "reference"]


def test_the_title_names_the_role_of_what_is_said_of_several() -> None:
    smaller = {**KNOWN, "model.parameters": 2**30}
    titles = [finding.title for finding in findings(actor=KNOWN, critic=smaller)]
    assert [title.rpartition(" ")[2] for title in titles] == ["(actor)", "(critic)"]
    (alone,) = findings(actor=KNOWN, critic=KNOWN)
    assert alone.title == rule().title


def test_what_checkpointing_would_give_back_is_not_kept_without_a_graph() -> None:
    kept = {**KNOWN, "training.gradient_checkpointing": False}
    frozen = {**kept, "program.keeps_graph": False, "model.parameters": 2**30}
    unless = "training.gradient_checkpointing"
    found = findings("forward", when="training.zero_stage == 3", unless=unless, actor=kept, reference=frozen)
    assert [finding.role for finding in found] == ["actor"]
    found = findings("forward", when=f"training.zero_stage == 3 and not {unless}", actor=kept, reference=frozen)
    assert [finding.role for finding in found] == ["actor"]


def test_without_a_graph_one_layer_at_a_time_counts() -> None:
    kept = {**KNOWN, "training.gradient_checkpointing": False}
    size = "model.parameters * (1 if training.gradient_checkpointing else 32)"
    frozen = {**kept, "program.keeps_graph": False}
    found = findings("forward", when="training.zero_stage == 3", size=size, actor=kept, reference=frozen)
    assert {finding.role: finding.impact and finding.impact.expected_bytes for finding in found} == {
        "actor": 32 * KNOWN["model.parameters"],
        "reference": KNOWN["model.parameters"],
    }


def test_nothing_of_training_is_certain_of_a_model_alone() -> None:
    alone = {"model.parameters": 2**30}
    (finding,) = findings("forward", when="model.parameters > 0", train=alone)
    assert (finding.status, finding.needs) == ("possible", ("training.framework",))
    (finding,) = findings("load", when="model.parameters > 0", train=alone)
    assert finding.status == "affected"


def test_what_is_merely_possible_is_said_of_trained_models() -> None:
    unknown = {"training.zero_stage": 3}
    when = "training.zero_stage == 3 and training.packing"
    frozen = {"model.parameters": 1, "program.keeps_graph": False}
    assert [finding.role for finding in findings(when=when, actor=unknown, reference=unknown | frozen)] == ["actor"]
