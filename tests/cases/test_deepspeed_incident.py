"""The DeepSpeed incident and its variants: who is affected, who is not, and what is left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.checking import Request, check
from compatcheck.core.report import Finding
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT

RULE = "deepspeed/zero3-params-kept-in-backward"
BLOCKS = 68_452_352_000
"""Parameters in the blocks of Llama-3-70B."""


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def find(rules: RuleSet, *paths: Path, **given: Any) -> list[Finding]:
    request = Request(paths=tuple(str(path) for path in paths), **given)
    report = check(request, rules, {})
    return list(report.findings)


def of_rule(findings: list[Finding], rule: str = RULE) -> Finding | None:
    found = [finding for finding in findings if finding.rule_id == rule]
    assert len(found) <= 1
    return found[0] if found else None


class Stack:
    """The inputs of one variant, written to a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def requirements(self, *lines: str) -> Path:
        return self.write("requirements.txt", "\n".join(lines) + "\n")

    def facts(self, training: dict[str, object], **sections: dict[str, object]) -> Path:
        lines = ["compatcheck: 1", "model: llama-3-70b"]
        for name, entries in {"training": training, **sections}.items():
            lines.append(f"{name}:")
            lines += [
                f"  {key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in entries.items()
            ]
        return self.write("facts.yaml", "\n".join(lines) + "\n")

    def deepspeed(self, stage: int = 3) -> Path:
        return self.write("ds.json", f'{{"bf16": {{"enabled": true}}, "zero_optimization": {{"stage": {stage}}}}}')

    def trainer(self, *lines: str) -> Path:
        base = [
            "output_dir: out",
            "learning_rate: 1.0e-5",
            "num_train_epochs: 1",
            "gradient_checkpointing: true",
            "bf16: true",
        ]
        return self.write("train.yaml", "\n".join([*base, *lines]) + "\n")


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path)


def zero3(framework: str, **more: object) -> dict[str, object]:
    return {"framework": framework, "zero_stage": 3, "gradient_checkpointing": True, "param_dtype": "bfloat16", **more}


def test_the_incident_itself_is_affected_and_sized(rules: RuleSet) -> None:
    finding = of_rule(find(rules, ROOT / "fixtures/cases/openrlhf-llama3-70b"))
    assert finding is not None
    assert finding.status == "affected"
    assert finding.severity == "critical"
    assert finding.impact is not None
    assert finding.impact.expected_bytes == pytest.approx(2 * BLOCKS, rel=0.01)
    assert any("0.16.8" in remedy.text and "nearest" in remedy.text for remedy in finding.remedies)


@pytest.mark.parametrize("nodes", [1, 4, 9])
def test_the_size_does_not_depend_on_the_node_count(rules: RuleSet, stack: Stack, nodes: int) -> None:
    files = [stack.requirements("deepspeed==0.16.4"), stack.facts(zero3("openrlhf"))]
    finding = of_rule(find(rules, *files, gpu="8xA800-80GB", nodes=nodes))
    assert finding is not None
    assert finding.impact is not None
    assert finding.impact.expected_bytes == 2 * BLOCKS


def test_openrlhf_with_nothing_else_said_is_affected(rules: RuleSet, stack: Stack) -> None:
    finding = of_rule(find(rules, stack.requirements("deepspeed==0.16.4"), stack.facts(zero3("openrlhf"))))
    assert finding is not None
    assert finding.status == "affected"


def test_hf_trainer_4_48_with_reentrant_unset_is_silent(rules: RuleSet, stack: Stack) -> None:
    files = [stack.requirements("deepspeed==0.16.4", "transformers==4.48.0"), stack.deepspeed(), stack.trainer()]
    assert of_rule(find(rules, *files, model="llama-3-70b")) is None


def test_hf_trainer_4_48_with_reentrant_false_is_affected(rules: RuleSet, stack: Stack) -> None:
    trainer = stack.trainer("gradient_checkpointing_kwargs:", "  use_reentrant: false")
    files = [stack.requirements("deepspeed==0.16.4", "transformers==4.48.0"), stack.deepspeed(), trainer]
    finding = of_rule(find(rules, *files, model="llama-3-70b"))
    assert finding is not None
    assert finding.status == "affected"
    assert any(source.path.endswith("train.yaml") and source.line == 7 for source in finding.locations)


def test_hf_trainer_5_with_reentrant_unset_is_affected(rules: RuleSet, stack: Stack) -> None:
    files = [stack.requirements("deepspeed==0.16.4", "transformers==5.3.0"), stack.deepspeed(), stack.trainer()]
    finding = of_rule(find(rules, *files, model="llama-3-70b"))
    assert finding is not None
    assert finding.status == "affected"


@pytest.mark.parametrize(
    ("setting", "status"),
    [
        ({"peft": "none"}, None),
        ({"peft": "none", "use_reentrant": False}, "affected"),
        ({"use_reentrant": False}, None),  # its default is an adapter, beside which the first backward fails
    ],
)
def test_llamafactory_is_reentrant_unless_told_otherwise(
    rules: RuleSet, stack: Stack, setting: dict[str, object], status: str | None
) -> None:
    requirements = stack.requirements("deepspeed==0.16.4", "transformers==4.48.0", "llamafactory==0.9.2")
    finding = of_rule(find(rules, requirements, stack.facts(zero3("llamafactory", **setting))))
    assert (finding.status if finding else None) == status


def test_a_deepspeed_file_alone_leaves_checkpointing_open(rules: RuleSet, stack: Stack) -> None:
    finding = of_rule(find(rules, stack.requirements("deepspeed==0.16.4"), stack.deepspeed()))
    assert finding is not None
    assert finding.status == "possible"
    assert finding.needs == ("training.gradient_checkpointing", "training.use_reentrant")


def test_packages_alone_leave_three_facts_open(rules: RuleSet, stack: Stack) -> None:
    finding = of_rule(find(rules, stack.requirements("deepspeed==0.16.4")))
    assert finding is not None
    assert finding.status == "possible"
    assert finding.needs == ("training.gradient_checkpointing", "training.use_reentrant", "training.zero_stage")


def test_a_requirement_range_is_possible_for_some_releases(rules: RuleSet, stack: Stack) -> None:
    finding = of_rule(find(rules, stack.requirements("deepspeed>=0.15"), stack.facts(zero3("openrlhf"))))
    assert finding is not None
    assert finding.status == "possible"
    assert finding.needs == ("version of deepspeed",)
    assert any("affected and unaffected" in assumption for assumption in finding.assumptions)


@pytest.mark.parametrize("version", ["0.15.4", "0.16.8", "0.16.9", "0.19.8"])
def test_releases_without_the_defect_are_silent(rules: RuleSet, stack: Stack, version: str) -> None:
    assert of_rule(find(rules, stack.requirements(f"deepspeed=={version}"), stack.facts(zero3("openrlhf")))) is None


def test_stage_2_is_silent(rules: RuleSet, stack: Stack) -> None:
    facts = stack.facts({**zero3("openrlhf"), "zero_stage": 2})
    assert of_rule(find(rules, stack.requirements("deepspeed==0.16.4"), facts)) is None


def test_one_rank_is_silent(rules: RuleSet, stack: Stack) -> None:
    files = [stack.requirements("deepspeed==0.16.4"), stack.facts(zero3("openrlhf"))]
    assert of_rule(find(rules, *files, gpu="1xH100-80GB", nodes=1)) is None


def test_0_15_4_is_told_of_its_own_defects_where_their_conditions_hold(rules: RuleSet, stack: Stack) -> None:
    requirements = stack.requirements("deepspeed==0.15.4")
    facts = stack.facts(
        {"framework": "openrlhf", "zero_stage": 3, "gradient_checkpointing": False, "param_dtype": "bfloat16"},
        run={"no_grad_forward_between": True},
    )
    finding = of_rule(find(rules, requirements, facts), "deepspeed/zero3-params-kept-after-no-grad-forward")
    assert finding is not None
    assert finding.status == "affected"
    facts = stack.facts({**zero3("openrlhf"), "zero_stage": 2, "offload_optimizer": "cpu"})
    finding = of_rule(find(rules, requirements, facts), "deepspeed/offload-fp32-copy-in-step")
    assert finding is not None
    assert finding.status == "affected"


def test_a_release_candidate_of_the_fix_is_possible(rules: RuleSet, stack: Stack) -> None:
    finding = of_rule(find(rules, stack.requirements("deepspeed==0.16.8rc1"), stack.facts(zero3("openrlhf"))))
    assert finding is not None
    assert finding.status == "possible"
    assert any("pre-release" in assumption for assumption in finding.assumptions)


LLAMA_FACTORY = ["deepspeed==0.16.4", "transformers==4.48.0", "llamafactory==0.9.2"]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((), None),
        (("use_reentrant_gc: false",), "affected"),
        (("use_reentrant_gc: false", "disable_gradient_checkpointing: true"), None),
        # the Trainer's own switch enables checkpointing once more, as reentrant
        (("use_reentrant_gc: false", "gradient_checkpointing: true"), None),
    ],
)
def test_llamafactory_file(rules: RuleSet, stack: Stack, lines: tuple[str, ...], status: str | None) -> None:
    directory = ROOT / "fixtures/configs/llama_factory"
    stack.write("zero3.json", (directory / "zero3.json").read_text(encoding="utf-8"))
    text = (directory / "full_zero3.yaml").read_text(encoding="utf-8")
    train = stack.write("train.yaml", "\n".join([text, *lines]) + "\n")
    finding = of_rule(find(rules, stack.requirements(*LLAMA_FACTORY), train))
    assert (finding.status if finding else None) == status
    if finding is not None:
        where = {(Path(source.path).name, source.key) for source in finding.locations}
        assert {("train.yaml", "use_reentrant_gc"), ("zero3.json", "zero_optimization.stage")} <= where
        assert any(remedy.text.startswith("set use_reentrant_gc to true") for remedy in finding.remedies)
        assert finding.impact is not None
        assert finding.impact.expected_bytes == 2 * BLOCKS


@pytest.mark.parametrize(
    ("release", "lines", "status"),
    [
        ("3.5.0", (), None),
        ("4.5.2", (), None),
        ("4.5.2", ("gradient_checkpointing_kwargs: '{\"use_reentrant\": false}'",), "affected"),
        ("4.5.2", ("gradient_checkpointing: false",), None),
    ],
)
def test_ms_swift_file(rules: RuleSet, stack: Stack, release: str, lines: tuple[str, ...], status: str | None) -> None:
    tuner = "train_type" if release.startswith("3.") else "tuner_type"
    base = ("model: llama-3-70b", f"{tuner}: full", "dataset: mine", "deepspeed: zero3", "torch_dtype: bfloat16")
    train = stack.write("sft.yaml", "\n".join([*base, *lines]) + "\n")
    requirements = stack.requirements("deepspeed==0.16.4", "transformers==4.57.1", f"ms-swift=={release}")
    finding = of_rule(find(rules, requirements, train))
    assert (finding.status if finding else None) == status
