"""Remedies are tried out: what does not hold what it promises is not printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compatcheck.checking.checks import Checks, Criteria
from compatcheck.checking.verdict import Judgement, judge
from compatcheck.core.effects import PATCH_RELEASE
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.fix import NOT_CHECKED, VERSION, Change, Plan, Resolution
from compatcheck.core.report import FindingRemedy
from compatcheck.fixing.remedies import agree_with, try_remedies
from compatcheck.rules.locate import open_rules
from tests.cli.run_cli import run
from tests.cli.test_fix_command import FACTS
from tests.unit.fixing.test_evaluation import RULE, read

if TYPE_CHECKING:
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

RULES = open_rules(())
CRITERIA = Criteria(RULES, Checks(), parse_threshold("medium"))


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tried(requirements: str, facts: str = FACTS, bad: frozenset[str] = frozenset()) -> Finding:
    """Return the finding with the remedies that hold; releases of deepspeed that are ``bad`` bring in another that fails."""
    Path("requirements.txt").write_text(requirements)
    Path("facts.yaml").write_text(facts)
    subject = read("requirements.txt", "facts.yaml")

    def judge_made_up(one: Subject) -> Judgement:
        found = judge(one, CRITERIA)
        assert one.environment is not None
        if one.environment.packages["deepspeed"].version not in bad:
            return found
        first = judge(subject, CRITERIA).findings[0]
        other = first._replace(rule_id="deepspeed/another", fails=True, status="affected")
        return found._replace(findings=(*found.findings, other))

    findings = try_remedies(subject, judge(subject, CRITERIA).findings, RULES, judge_made_up)
    (finding,) = (one for one in findings if one.rule_id == RULE)
    return finding


def releases(finding: Finding) -> list[dict[str, str]]:
    return [dict(one.releases) for one in finding.remedies if one.releases]


def test_the_nearest_good_release_is_advised() -> None:
    assert releases(tried("deepspeed==0.16.4\n")) == [{"deepspeed": "0.16.8"}]


SFT = "  framework: trl\n  trainer: sft\n  use_liger_kernel: false\n"
ACCUMULATES = "  framework: verl\n  sharding: fsdp\n  fsdp_version: 2\n  gradient_accumulation_steps: 8\n"


@pytest.mark.parametrize(
    ("requirement", "training", "rule_id", "good"),
    [
        ("trl==0.15.2", SFT, "trl/sft-loss-materialises-logits", {"trl": "1.7.0"}),
        ("trl==1.6.0", SFT, "trl/sft-loss-materialises-logits", {"trl": "1.7.0"}),
        ("trl==1.6.0", f"{SFT}  loss_type: nll\n", "trl/sft-loss-materialises-logits", {"trl": "1.15.0"}),
        ("verl==0.9.0", ACCUMULATES, "verl/no-sync-keeps-unsharded-gradients", {"verl": "0.9.1"}),
    ],
)
def test_a_default_is_that_of_the_release_that_is_tried(
    requirement: str, training: str, rule_id: str, good: dict[str, str]
) -> None:
    """An unset loss_type is no fact of TRL 0.15.2, nll in 1.6.0 and the chunked loss in 1.7.0."""
    Path("requirements.txt").write_text(f"{requirement}\n")
    Path("facts.yaml").write_text(f"compatcheck: 1\ntraining:\n{training}hardware:\n  world_size: 8\n")
    subject = read("requirements.txt", "facts.yaml")
    found = try_remedies(subject, judge(subject, CRITERIA).findings, RULES, lambda one: judge(one, CRITERIA))
    (finding,) = (one for one in found if one.rule_id == rule_id)
    assert releases(finding) == [good]


def test_a_release_of_a_package_that_a_condition_alone_names_is_advised() -> None:
    """The exception of the rule asks for it; no clause is about it, and the plan moves it all the same."""
    Path("requirements.txt").write_text("transformers==4.57.6\ntrl==0.28.0\nliger-kernel==0.6.4\n")
    training = SFT.replace("false", "true") + "  evaluates: true\n"
    Path("facts.yaml").write_text(f"compatcheck: 1\nmodel: qwen2.5-7b\ntraining:\n{training}")
    subject = read("requirements.txt", "facts.yaml")
    found = try_remedies(subject, judge(subject, CRITERIA).findings, RULES, lambda one: judge(one, CRITERIA))
    (finding,) = (one for one in found if one.rule_id == "transformers/liger-evaluation-makes-logits")
    assert releases(finding) == [{"trl": "0.29.0"}, {"transformers": "5.15.0"}]


MISTRAL = """compatcheck: 1
model: {from: mistral-7b-v0.1}
training: {framework: hf_trainer, micro_batch_size: 4, sequence_length: 2048, gradient_checkpointing: false}
"""


def test_a_release_is_advised_of_a_package_that_a_rule_holds_by_a_condition_alone() -> None:
    Path("requirements.txt").write_text("transformers==4.36.2\ntorch==2.1.2\n")
    Path("facts.yaml").write_text(MISTRAL)
    subject = read("requirements.txt", "facts.yaml")
    found = try_remedies(subject, judge(subject, CRITERIA).findings, RULES, lambda one: judge(one, CRITERIA))
    (finding,) = (one for one in found if one.rule_id == "transformers/architecture-without-sdpa")
    assert releases(finding) == [{"transformers": "4.37.0"}]


def test_a_release_that_brings_in_what_fails_gives_way_to_the_next() -> None:
    finding = tried("deepspeed==0.16.4\n", bad=frozenset({"0.16.8"}))
    assert releases(finding) == [{"deepspeed": "0.16.9"}]
    assert "0.16.8" not in " ".join(one.text for one in finding.remedies)


def test_a_release_at_which_nobody_knows_whether_it_is_there_clears_nothing() -> None:
    Path("requirements.txt").write_text("deepspeed==0.16.4\n")
    Path("facts.yaml").write_text(FACTS)
    subject = read("requirements.txt", "facts.yaml")
    before = judge(subject, CRITERIA).findings

    def judge_made_up(one: Subject) -> Judgement:
        found = judge(one, CRITERIA)
        assert one.environment is not None
        if one.environment.packages["deepspeed"].version != "0.16.8":
            return found
        unsure = next(one for one in before if one.rule_id == RULE)._replace(status="possible", fails=False)
        return found._replace(findings=(*found.findings, unsure))

    (finding,) = (one for one in try_remedies(subject, before, RULES, judge_made_up) if one.rule_id == RULE)
    assert releases(finding) == [{"deepspeed": "0.16.9"}]


def test_where_every_release_brings_in_what_fails_none_is_advised() -> None:
    known = frozenset(RULES.releases("deepspeed"))
    finding = tried("deepspeed==0.16.4\n", bad=known - {"0.16.4"})
    assert releases(finding) == []
    assert [one.settings for one in finding.remedies] == [(("training.use_reentrant", True),)]


def test_a_setting_that_clears_nothing_is_not_advised() -> None:
    Path("requirements.txt").write_text("deepspeed==0.16.4\n")
    Path("facts.yaml").write_text(FACTS)
    subject = read("requirements.txt", "facts.yaml")
    findings = judge(subject, CRITERIA).findings

    def settings(stays: bool) -> list[object]:  # noqa: FBT001 (a value)
        def judge_made_up(one: Subject) -> Judgement:
            found = judge(one, CRITERIA)
            changed = one.roles["train"]["training.use_reentrant"].value
            return found._replace(findings=findings) if changed and stays else found

        (finding,) = (one for one in try_remedies(subject, findings, RULES, judge_made_up) if one.rule_id == RULE)
        return [one.settings for one in finding.remedies if one.settings]

    assert settings(stays=False) == [(("training.use_reentrant", True),)]
    assert settings(stays=True) == []


FALCON = """compatcheck: 1
model: {model_type: falcon, vocab_size: 65024}
training: {framework: hf_trainer, trainer: causal_lm, label_smoothing: 0, compute_dtype: bfloat16, sharding: zero,
  sequence_length: 2048, micro_batch_size: MICRO}
"""


@pytest.mark.parametrize(("batch", "advised"), [("4", True), ("1", False)])
def test_a_setting_that_leaves_less_than_half_is_advised_with_what_it_leaves(batch: str, advised: bool) -> None:  # noqa: FBT001
    Path("requirements.txt").write_text("transformers==4.51.3\n")
    Path("facts.yaml").write_text(FALCON.replace("MICRO", batch))
    subject = read("requirements.txt", "facts.yaml")
    found = try_remedies(subject, judge(subject, CRITERIA).findings, RULES, lambda one: judge(one, CRITERIA))
    (finding,) = (one for one in found if one.rule_id == "transformers/loss-newly-in-float32")
    texts = [one.text for one in finding.remedies if one.settings == (("training.micro_batch_size", 1),)]
    assert bool(texts) == advised
    assert all(text.endswith("; leaves 762.0 MiB per rank") for text in texts)


def test_a_setting_in_force_is_not_advised() -> None:
    """What is set to what a remedy says, and held to be no cause by nothing, is no advice."""
    Path("requirements.txt").write_text("deepspeed==0.16.4\n")
    Path("facts.yaml").write_text(FACTS)
    subject = read("requirements.txt", "facts.yaml")
    findings = judge(subject, CRITERIA).findings
    Path("facts.yaml").write_text(FACTS.replace("use_reentrant: false", "use_reentrant: true"))
    in_force = read("requirements.txt", "facts.yaml")
    (finding,) = (
        one for one in try_remedies(in_force, findings, RULES, lambda one: judge(one, CRITERIA)) if one.rule_id == RULE
    )
    assert not any(one.settings for one in finding.remedies)


def test_what_is_only_possible_is_left_as_it_is() -> None:
    finding = tried("deepspeed==0.16.4\n", FACTS.replace("  use_reentrant: false\n", ""), bad=frozenset({"0.16.8"}))
    assert finding.status == "possible"
    assert "0.16.8" in finding.remedies[0].text


def test_what_has_to_move_along_is_part_of_the_remedy() -> None:
    finding = tried("openrlhf==0.6.1\ndeepspeed==0.16.4\n")
    first = finding.remedies[0]
    assert dict(first.releases) == {"deepspeed": "0.16.8", "openrlhf": "0.8.1"}
    assert "with openrlhf 0.8.1 (openrlhf 0.6.1 requires deepspeed==0.16.4" in first.text
    assert first.command == "pip install 'deepspeed==0.16.8' 'openrlhf==0.8.1'"


def test_an_engine_that_the_release_has_an_extra_for_moves_along() -> None:
    first = tried("openrlhf==0.6.1\ndeepspeed==0.16.4\nvllm==0.7.2\n").remedies[0]
    assert dict(first.releases) == {"deepspeed": "0.16.8", "openrlhf": "0.8.1", "vllm": "0.8.5.post1"}


def test_a_pin_that_is_in_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from compatcheck.fixing.companions import Companions
    from compatcheck.resolution.pins import Pin

    pin = Pin("openrlhf", "0.6.1", "deepspeed", "==0.16.4")
    monkeypatch.setattr(Companions, "complete", lambda *_: pin)
    first = tried("openrlhf==0.6.1\ndeepspeed==0.16.4\n").remedies[0]
    assert first.command is None
    assert first.note is not None
    assert first.note.startswith(
        "openrlhf 0.6.1 requires deepspeed==0.16.4, and no known release of openrlhf allows another"
    )


def test_what_a_remedy_brings_in_below_what_fails_is_said() -> None:
    Path("requirements.txt").write_text("deepspeed==0.16.4\n")
    Path("facts.yaml").write_text(FACTS)
    subject = read("requirements.txt", "facts.yaml")
    findings = judge(subject, CRITERIA).findings
    other = findings[0]._replace(
        rule_id="deepspeed/another", fails=False, advice=False, folded=False, status="affected"
    )

    def judge_made_up(one: Subject) -> Judgement:
        found = judge(one, CRITERIA)
        assert one.environment is not None
        moved = one.environment.packages["deepspeed"].version != "0.16.4"
        return found._replace(findings=(*found.findings, other)) if moved else found

    (finding,) = (one for one in try_remedies(subject, findings, RULES, judge_made_up) if one.rule_id == RULE)
    moving, setting = (one.text for one in finding.remedies)
    assert moving.startswith("upgrade deepspeed to 0.16.8 (nearest good release); brings in deepspeed/another, ")
    assert "brings in" not in setting


def test_a_remedy_that_is_the_plan_is_not_said_twice() -> None:
    finding = tried("deepspeed==0.16.4\ntransformers==4.51.0\n")
    up, down = (
        FindingRemedy(f"to {one}", None, "safe", releases=(("deepspeed", one),)) for one in ("0.16.8", "0.15.4")
    )
    change = Change(
        VERSION,
        "deepspeed",
        "0.16.4",
        "0.16.8",
        frozenset({finding.subject}),
        PATCH_RELEASE,
        (0,),
        "",
        release="0.16.8",
    )
    plan = Plan((finding.subject,), (change,), (), Resolution(NOT_CHECKED), (finding,), ())
    (after,) = agree_with(plan, [finding._replace(remedies=(down, up))])
    assert [one.text for one in after.remedies] == ["to 0.16.8"]
    (after,) = agree_with(plan, [finding._replace(remedies=(down,))])
    assert [one.text for one in after.remedies] == ["as planned for all findings: deepspeed 0.16.8"]
    elsewhere = FindingRemedy("to 5.15.0", None, "safe", releases=(("transformers", "5.15.0"),))
    (after,) = agree_with(plan, [finding._replace(remedies=(elsewhere,))])
    assert [one.text for one in after.remedies] == ["as planned for all findings: deepspeed 0.16.8", "to 5.15.0"]


@pytest.mark.parametrize("accelerate", ["0.31.0", "0.20.3"])
def test_a_package_that_moves_back_goes_behind_its_own_requirements(accelerate: str, tmp_path: Path) -> None:
    """peft 0.6.0 to 0.14.0 ask for accelerate 0.21.0, 0.5.0 does not: that no release allows another was never so."""
    listed = tmp_path / "requirements.txt"
    listed.write_text(f"peft==0.15.0\naccelerate=={accelerate}\ntorch==2.4.0\ntransformers==4.44.2\n")
    told = " ".join(run("check", str(listed), "--no-policy").out.split())
    assert "no known release of peft" not in told
    assert f"accelerate {accelerate} → 0.32.0" in told


def test_what_a_variable_alone_may_keep_is_said_behind_the_setting() -> None:
    Path("requirements.txt").write_text("flash-attn==2.8.3\ntransformers==4.46.3\ntorch==2.5.1\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nmodel: {from: llama-3-8b, attn_implementation: flash_attention_2}\nhardware: {multiprocessors: 132}\n"
        "training: {framework: hf_trainer, full_determinism: true, packing: false, micro_batch_size: 1}\n"
    )
    told = " ".join(
        run("check", ".", "--no-policy", "--select", "flash-attn/deterministic-backward-splits-dq").out.split()
    )
    assert "at facts.yaml:4; FLASH_ATTENTION_DETERMINISTIC, which is not known here, may keep it" in told
