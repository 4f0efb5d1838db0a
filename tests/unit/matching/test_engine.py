"""Every rule that concerns a subject is evaluated; what cannot be evaluated or decided is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.document import Document, Gap
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.core.summary import because_text, needs_text, place_text, size_text, worst_first
from compatcheck.matching.decision import decide
from compatcheck.matching.engine import RelevantRules, match
from compatcheck.resolution.scope import COMPONENT_FACTS, FactScope
from compatcheck.resolution.subject import Subject
from compatcheck.rules.rule import Clause, Impact, Rule
from tests.cli.run_cli import run
from tests.unit.matching.drawn_subjects import facts_of, stack, subject
from tests.unit.rules.drawn_rules import PACKAGES, drawn_rules, rule, rule_set

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = {
    "training.zero_stage": 3,
    "training.gradient_checkpointing": True,
    "training.param_dtype": "bfloat16",
    "model.parameters": 5 * 2**30,
    "hardware.memory_bytes": 80 * 2**30,
}


def test_a_finding_carries_its_size_facts_places_and_remedy() -> None:
    (finding,) = match(subject(KNOWN), rule_set(rule())).findings
    assert (finding.status, finding.severity, finding.needs) == ("affected", "high", ())
    assert finding.impact is not None
    assert finding.impact.expected_bytes == 10 * 2**30
    assert finding.impact.low_bytes == finding.impact.high_bytes == 10 * 2**30
    names = [fact.name for fact in finding.facts]
    assert names[0] == "deepspeed"
    assert set(names) == {"deepspeed", *KNOWN} - {"hardware.memory_bytes"}
    assert {source.path for source in finding.locations} == {"env", "f.yaml"}
    assert "0.16.8" in finding.remedies[0].text


def test_findings_come_worst_first_and_certain_before_possible() -> None:
    rules = rule_set(
        rule(id="a/possible", when="training.packing and training.zero_stage == 3"),
        rule(id="a/small", impact=Impact(effect="memory", memory="device", scope="rank", phase="whole", expected="5")),
        rule(id="a/large"),
        rule(id="a/stops", impact=Impact(effect="fails_to_start", memory="device", scope="rank", phase="whole")),
    )
    found = [finding.rule_id for finding in sorted(match(subject(KNOWN), rules).findings, key=worst_first)]
    assert found == ["a/stops", "a/large", "a/small", "a/possible"]


def test_a_bound_without_a_size_rates_it_and_is_no_size() -> None:
    bounded = Impact(effect="memory", memory="device", scope="rank", phase="load", high="2 * model.parameters")
    (finding,) = match(subject(KNOWN), rule_set(rule(impact=bounded))).findings
    assert finding.impact is not None
    assert (finding.impact.low_bytes, finding.impact.expected_bytes, finding.impact.high_bytes) == (None, None, None)
    assert finding.severity == "high"
    assert "size unknown, rated by the 10.0 GiB that it is at most" in finding.assumptions


def test_a_size_that_is_one_of_two_lies_between_them() -> None:
    twice = Impact(
        effect="memory",
        memory="device",
        scope="rank",
        phase="load",
        expected="(2 if training.packing else 1) * model.parameters",
    )
    (finding,) = match(subject(KNOWN), rule_set(rule(impact=twice))).findings
    assert finding.impact is not None
    assert (finding.impact.low_bytes, finding.impact.expected_bytes) == (5 * 2**30, None)
    assert finding.impact.high_bytes == 10 * 2**30
    assert size_text(finding.impact) == "5.00 GiB … 10.0 GiB per rank"
    assert (finding.severity, finding.impact.needs) == ("high", ("training.packing",))
    assert "rated by the 10.0 GiB that it is at most" in finding.assumptions


def test_a_limit_that_no_sample_is_held_to_bounds_nothing() -> None:
    bound = Impact(
        effect="memory", memory="device", scope="rank", phase="load", high="training.sequence_length * 2**20"
    )
    for kept, said in ((False, "rated by the 1.00 GiB that it is at most"), (True, "nothing known bounds it")):
        known = {**KNOWN, "training.sequence_length": 1024, "training.keeps_long_rows": kept}
        (finding,) = match(subject(known), rule_set(rule(impact=bound))).findings
        assert said in " ".join(finding.assumptions)


VERSIONS = st.sampled_from(
    ["0.9", "1.4", "1.5", "1.5rc1", "2.1+g1a2b3c4", "3.1", "not-a-version", ">=1,<4", "<0.5", ""]
)


@settings(max_examples=300)
@given(
    drawn_rules,
    st.dictionaries(st.sampled_from(["accelerate", "deepspeed", "torch", "other"]), VERSIONS),
    st.sampled_from([{}, {"runtime.cudnn": "1.4"}, {"training.zero_stage": 3, "runtime.cudnn": "3.1"}]),
)
def test_a_rule_that_is_not_read_for_its_ranges_would_have_been_silent(
    rules: list[Rule], versions: dict[str, str], values: dict[str, Any]
) -> None:
    opened = rule_set(*rules, **{f"releases/{name}": ["0.1", "1.0", "1.5", "2.0", "3.5"] for name in PACKAGES})
    run = subject(values, stack(complete="other" in versions, **versions))
    read = [rule.id for rule in RelevantRules.of(run, opened).rules]
    every = list(opened.rules_about((*versions, *COMPONENT_FACTS)))
    assert read == [rule.id for rule in every if rule.id in set(read)]
    for compiled in every:
        if compiled.id not in read:
            assert decide(compiled, FactScope(run.roles["train"], run.environment, opened)).status == "silent"


def test_rules_about_other_releases_are_not_read() -> None:
    rules = rule_set(
        rule(id="a/bad"),
        rule(id="a/old", clauses=(Clause(packages={"deepspeed": "<0.15"}), Clause(packages={"deepspeed": ">=0.17"}))),
        rule(id="a/either", clauses=(Clause(packages={"deepspeed": "<0.15"}), Clause(packages={"torch": ">=2"}))),
        rule(id="a/unverified", clauses=(Clause(packages={"deepspeed": "<0.15"}),), unverified={"deepspeed": "<0.17"}),
    )
    assert [one.id for one in RelevantRules.of(subject(), rules).rules] == ["a/bad", "a/either", "a/unverified"]


def test_what_many_rules_ask_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    value = FactScope.value

    def note(self: FactScope, name: str) -> object:
        asked.append(name)
        return value(self, name)

    rules = rule_set(
        *(rule(id=f"a/{number}", when=f"training.zero_stage == 3 and {number} > 0") for number in range(1, 9))
    )
    monkeypatch.setattr(FactScope, "value", note)
    found = match(subject(KNOWN), rules).findings
    assert len(found) == 8
    assert asked.count("training.zero_stage") == 1


def test_a_rule_about_memory_that_nothing_allocates_is_not_decided() -> None:
    wrong = rule(when="training.zero_stage * 'a' == 3")
    assert match(subject(KNOWN), rule_set(wrong)).skipped
    without = {name: value for name, value in KNOWN.items() if name != "hardware.memory_bytes"}
    assert not match(subject({**without, "runtime.torch_build": "cpu"}), rule_set(wrong)).skipped


def test_selection_leaves_rules_out() -> None:
    rules = rule_set(rule(id="a/x"), rule(id="a/y"))
    assert [finding.rule_id for finding in match(subject(KNOWN), rules, lambda name: name == "a/y").findings] == ["a/y"]


@pytest.mark.parametrize(
    "changes",
    [
        {"when": "model.parameters / 0 > 1"},
        {"when": "table('unheard-of', 1) == 1"},
        {"when": "env('A') < 1"},
        {
            "impact": Impact(
                effect="memory", memory="device", scope="rank", phase="whole", expected="model.parameters / 0"
            )
        },
        {
            "impact": Impact(
                effect="memory", memory="device", scope="rank", phase="whole", expected="training.param_dtype"
            )
        },
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_said_and_loses_no_other(changes: dict[str, object]) -> None:
    environment = stack(deepspeed="0.16.4", torch="2.8")._replace(variables={"A": "x"})
    outcome = match(subject(KNOWN, environment), rule_set(rule(id="a/broken", **changes), rule(id="a/sound")))
    assert [finding.rule_id for finding in outcome.findings] == ["a/sound"]
    assert [str(entry.source) for entry in outcome.skipped] == ["a/broken"]


def test_drafts_and_withdrawn_rules_never_match() -> None:
    rules = rule_set(rule(id="a/draft", status="draft", reason="r"), rule(id="a/gone", status="withdrawn", reason="r"))
    assert match(subject(KNOWN), rules).findings == ()


def test_folklore_shows_only_beside_what_it_debunks() -> None:
    folklore = rule(id="a/myth", kind="folklore", debunks=("a/real",), title="Use 0.15.0")
    (finding,) = match(subject(KNOWN), rule_set(folklore, rule(id="a/real"))).findings
    assert finding.folklore == (("a/myth", "Use 0.15.0"),)
    assert match(subject(KNOWN), rule_set(folklore)).findings == ()


def test_a_pitfall_of_every_release_waits_until_something_speaks_for_it() -> None:
    for kind in ("pitfall", "incompatibility"):
        waits = rule(kind=kind, clauses=(Clause(packages={"deepspeed": "present"}),))
        outcome = match(subject(), rule_set(waits))
        assert (outcome.findings, outcome.waiting) == ((), 1)
        (finding,) = match(subject({"training.zero_stage": 3}), rule_set(waits)).findings
        assert finding.status == "possible"
    (finding,) = match(subject(), rule_set(rule())).findings  # a release known to be bad speaks for itself
    assert finding.needs == ("training.gradient_checkpointing", "training.zero_stage")


def test_that_a_package_is_not_there_speaks_for_no_pitfall() -> None:
    full = "training.peft is None and training.zero_stage == 3"
    waits = rule(kind="pitfall", clauses=(Clause(packages={"deepspeed": "present"}),), when=full)
    for origin, found in (("installed", 0), ("configuration", 1)):
        told = subject({})
        facts = {"training.peft": Fact("training.peft", None, origin)}
        outcome = match(told._replace(roles=dict.fromkeys(told.roles, facts)), rule_set(waits))
        assert (len(outcome.findings), outcome.waiting) == (found, 1 - found)


@pytest.mark.parametrize("fact", ["run.converts_zero_checkpoint", "run.merges_adapter"])
def test_a_program_that_only_converts_hears_no_rule_of_training(fact: str) -> None:
    converts = subject({fact: True})
    assert match(converts, rule_set(rule())).findings == ()
    gap = Gap(
        Source("t.py"), "may change the model: train(model)", facts=frozenset({"training.gradient_checkpointing"})
    )
    assert match(converts._replace(gaps=(gap,)), rule_set(rule())).findings
    assert match(subject({fact: True, "training.zero_stage": 3}), rule_set(rule())).findings


def test_releases_that_do_not_go_together_speak_for_themselves() -> None:
    pair = Clause(packages={"deepspeed": "<0.17", "torch": ">=2.8"})
    for clause, found in ((pair, 1), (Clause(packages={"deepspeed": "<0.17", "torch": "present"}), 0)):
        broken = rule(kind="incompatibility", clauses=(clause,))
        outcome = match(subject({}, stack(deepspeed="0.16.4", torch="2.8.0")), rule_set(broken))
        assert (len(outcome.findings), outcome.waiting) == (found, 1 - found)
    ranged = stack(deepspeed="0.16.4", torch="2.8.0")._replace(packages={})
    assert match(subject({}, ranged), rule_set(rule(kind="incompatibility", clauses=(pair,)))).findings == ()


def test_code_of_transformers_is_none_of_a_program_that_runs_other_models() -> None:
    about = rule(
        clauses=(Clause(packages={"transformers": ">=4.36"}),), when="training.micro_batch_size > 0", unless=None
    )
    facts = {"training.micro_batch_size": 1, "training.framework": "torchtune"}
    for runs, found in ((True, 1), (False, 0)):
        one = Subject(
            "s", stack(transformers="4.48.0"), {"train": facts_of({**facts, "program.runs_transformers": runs})}
        )
        assert len(match(one, rule_set(about)).findings) == found


def test_code_that_a_program_never_runs_is_none_of_it() -> None:
    about = rule(clauses=(Clause(packages={"peft": ">=0.1"}),), when="training.micro_batch_size > 0", unless=None)
    facts = {"training.micro_batch_size": 1, "training.framework": "torchtune"}
    for never, found in ((("trl",), 1), (("peft", "trl"), 0)):
        one = Subject("s", stack(peft="0.10.0"), {"train": facts_of({**facts, "program.never_runs": never})})
        assert len(match(one, rule_set(about)).findings) == found


def test_an_implied_package_of_unknown_release_is_folded_into_a_count() -> None:
    named = subject(KNOWN, stack(complete=False, torch="2.8"))._replace(
        documents=(Document("deepspeed", Source("ds.json"), ()),)
    )
    outcome = match(named, rule_set(rule(id="a/x"), rule(id="a/y")))
    assert outcome.findings == ()
    assert outcome.folded == (("deepspeed", 2),)
    assert match(named._replace(documents=()), rule_set(rule())).folded == ()
    complete = named._replace(environment=stack(torch="2.8"))
    assert match(complete, rule_set(rule())).folded == ()


def test_full_fine_tuning_is_assumed_for_a_size_and_said() -> None:
    made = rule(
        impact=Impact(
            effect="memory", memory="device", scope="rank", phase="step", expected="2 * model.trainable_parameters"
        )
    )
    (finding,) = match(subject(KNOWN), rule_set(made)).findings
    assert finding.impact is not None
    assert finding.impact.expected_bytes == 10 * 2**30
    assert any("every parameter is trained" in assumption for assumption in finding.assumptions)
    (finding,) = match(subject({**KNOWN, "training.peft": "lora"}), rule_set(made)).findings
    assert finding.impact is not None
    assert finding.impact.expected_bytes is None
    assert finding.impact.needs == ("model.trainable_parameters",)


def test_every_role_is_judged_on_its_own_facts() -> None:
    made = subject(KNOWN)
    other = subject({**KNOWN, "training.zero_stage": 2})
    both = made._replace(roles={"actor": made.roles["train"], "critic": other.roles["train"]})
    assert [finding.role for finding in match(both, rule_set(rule())).findings] == ["actor"]


@pytest.mark.parametrize(
    ("framework", "need"),
    [
        ({}, "training.framework"),
        ({"training.framework": "trl"}, "whether labels are handed to the model (code of TRL)"),
    ],
)
def test_a_trait_that_nobody_read_is_asked_for_by_its_program_or_in_words(framework: dict[str, str], need: str) -> None:
    labelled = rule(when="training.zero_stage == 3 and program.passes_labels", unless=None)
    (finding,) = match(subject({**KNOWN, **framework}), rule_set(labelled)).findings
    assert finding.needs == (need,)
    assert needs_text(finding.needs).endswith(need if framework else "=…")


def test_a_trait_among_the_reasons_says_what_it_means() -> None:
    labelled = rule(when="program.passes_labels", unless=None)
    (finding,) = match(subject({**KNOWN, "program.passes_labels": True}), rule_set(labelled)).findings
    (trait,) = (fact for fact in finding.facts if fact.name == "program.passes_labels")
    assert place_text(trait).endswith(": labels are handed to the model")
    assert because_text(trait).endswith(": labels are handed to the model)")


def test_what_adapters_train_is_not_rated_as_the_whole_model() -> None:
    size = "2 * model.trainable_parameters"
    grown = rule(impact=Impact(effect="memory", memory="device", scope="rank", phase="backward", expected=size))
    widths = {
        "model.hidden_size": 4096,
        "model.num_key_value_heads": 8,
        "model.head_dim": 128,
        "training.lora_rank": 16,
    }
    adapters = {"training.peft": "lora"}
    found = [
        match(subject(facts), rule_set(grown)).findings[0].severity
        for facts in (KNOWN, KNOWN | adapters, KNOWN | widths | adapters, KNOWN | widths | {"training.peft": "freeze"})
    ]
    assert found == ["high", "high", "low", "high"]


def test_a_served_model_is_told_of_what_its_engine_imports() -> None:
    stops = Impact(effect="fails_to_start", memory="device", scope="rank", phase="load")
    newer = {"transformers": ">=4.54"}
    rules = rule_set(
        rule(id="a/engine-and-import", when=None, clauses=(Clause(packages={"vllm": "<0.10", **newer}),), impact=stops),
        rule(id="a/import-alone", when=None, clauses=(Clause(packages=newer),), impact=stops),
    )
    served = (Document("vllm", Source("serve.sh"), (), is_command=True),)
    installed = subject({}, stack(vllm="0.9.2", transformers="4.54.0"))._replace(documents=served)
    assert [finding.rule_id for finding in match(installed, rules).findings] == ["a/engine-and-import"]


@pytest.mark.parametrize(
    "pins", ["torch==2.7.0+cpu\ntorchvision==0.21.0\n", "torch==2.6.0+cpu\ntorchvision==0.21.0+cu124\n"]
)
def test_what_does_not_start_does_not_start_beside_a_torch_without_devices_either(pins: str, tmp_path: Path) -> None:
    """Run: torch 2.13.0+cpu beside torchvision 0.22.0 ends with "operator torchvision::nms does not exist"."""
    (tmp_path / "requirements.txt").write_text(pins)
    found = run("check", str(tmp_path), "--no-policy")
    assert found.code == 1
    assert "_stack/built-for-another-torch" in found.out


@pytest.mark.parametrize(("stage", "said"), [(3, ["a/guarded"]), (2, [])])
def test_a_condition_that_is_asked_where_a_fact_is_stated_is_evidence(stage: int, said: list[str]) -> None:
    when = "(training.packing and training.zero_stage == 3) if declared('model.parameters') else False"
    guarded = rule(id="a/guarded", kind="pitfall", when=when)
    stated = {**KNOWN, "training.zero_stage": stage}
    assert [finding.rule_id for finding in match(subject(stated), rule_set(guarded)).findings] == said
