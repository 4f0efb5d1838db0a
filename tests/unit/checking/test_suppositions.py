"""What nobody states of a run and would decide that it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, check, estimate, fit, open_rules
from compatcheck.checking.checks import Checks, open_criteria
from compatcheck.checking.estimates import EstimateOptions
from compatcheck.checking.fix import find_fix
from compatcheck.checking.inspection import as_inspection
from compatcheck.core.headline import headline
from compatcheck.fixing.plan import Ways
from compatcheck.reporters.json import describe_report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.report import Finding, Report
    from compatcheck.resolution.subject import Subject

RULE = "deepspeed/zero3-params-kept-in-backward"
FACTS = """compatcheck: 1
model: {parameters: 32763876352, parameters_in_blocks: 31206600000, hidden_size: 5120, intermediate_size: 27648,
  num_hidden_layers: 64, num_attention_heads: 40, num_key_value_heads: 8, vocab_size: 152064, model_type: qwen2,
  attn_implementation: flash_attention_2}
training: {sharding: zero, zero_stage: 3, gradient_checkpointing: true, param_dtype: bfloat16, micro_batch_size: 1,
  sequence_length: 2048}
hardware: {nodes: 2, gpus_per_node: 8, world_size: 16}
"""


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\ntransformers==4.46.3\ntorch==2.5.1\n")
    (tmp_path / "facts.yaml").write_text(FACTS)
    return Request(paths=(".",), gpu="H100-80GB", here=False)


def look(asked: Request, *settings: str, strict: bool = False) -> Report:
    return check(asked._replace(settings=settings), open_rules(), {}, Checks(strict=strict))


def outcome(report: Report) -> str:
    found = report.subjects[0].estimate
    assert found is not None
    return found.verdict.outcome


def test_a_possible_regression_that_decides_the_fit_leaves_it_open(request_of: Request) -> None:
    report = look(request_of)
    assert (outcome(report), report.exit_code) == ("marginal", 0)
    said = headline(report)[-1]
    assert said.startswith("may not fit: needs 39.3 GiB (36.1 to 103.5) of 79.6 GiB a device; 97.4 GiB ")
    assert said.endswith(f"with {RULE}, if training.use_reentrant is false")
    found = {one.rule_id: one for one in report.findings}
    assert (found[RULE].status, found[RULE].severity, found[RULE].fails) == ("possible", "critical", False)
    assert "deepspeed" in {fact.name for fact in found["_stack/run-may-not-fit"].facts}
    (subject,) = describe_report(report)["subjects"]  # type: ignore[misc]
    assert [one["rule"] for one in subject["estimate"]["possible_regressions"]] == [RULE]
    assert look(request_of, strict=True).exit_code == 1


@pytest.mark.parametrize(("value", "expected"), [("false", "does_not_fit"), ("true", "fits")])
def test_what_is_announced_is_what_the_statement_gives(request_of: Request, value: str, expected: str) -> None:
    assert outcome(look(request_of, f"training.use_reentrant={value}")) == expected


def test_every_command_has_the_same_doubt(request_of: Request) -> None:
    (estimated,) = estimate(request_of, open_rules(), {}, EstimateOptions(suggest=True)).reports
    assert estimated.estimate == look(request_of).subjects[0].estimate
    first = estimated.suggestions[0]
    assert [(one.name, one.release) for one in first.changes] == [("deepspeed", "0.16.8")]
    assert first.outcome == "fits"
    inspection = as_inspection(request_of)
    (plan,) = find_fix(inspection, open_criteria(inspection, open_rules(), Checks()), {}, Ways(None)).plans
    assert [(one.name, one.release) for one in plan.changes] == [("deepspeed", "0.16.8")]
    assert any("if training.use_reentrant is false" in note for note in plan.notes)


@pytest.mark.parametrize(
    "settings",
    [
        ("hardware.memory_bytes=141GiB",),  # room for it
        ("training.zero_stage=2",),  # not this rule's sharding
    ],
)
def test_what_does_not_decide_or_concern_it_leaves_no_doubt(request_of: Request, settings: tuple[str, ...]) -> None:
    found = look(request_of, *settings).subjects[0].estimate
    assert found is not None
    assert not found.possible


def test_the_stage_is_a_setting_of_a_run_that_shards_with_zero(request_of: Request, tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text(FACTS.replace("zero_stage: 3, ", ""))
    found = look(request_of, "training.use_reentrant=false", "training.offload_optimizer=cpu").subjects[0].estimate
    assert found is not None
    assert found.verdict.outcome != "fits"


def test_what_is_supposed_on_other_devices_is_judged_by_their_memory(request_of: Request) -> None:
    (report,) = estimate(request_of, open_rules(), {}, EstimateOptions(suggest=True)).reports
    assert report.estimate.verdict.outcome == "marginal"
    found = {placement.gpu: placement.gpus for placement in report.placements}
    assert found["H200"] == 16  # 97.4 GiB with the regression of 140.4
    assert "H100-80GB" not in found


def test_only_what_makes_a_finding_certain_is_priced(request_of: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run itself, and the one value of two with which the finding is certain."""
    priced: list[Sequence[Finding]] = []
    before = fit.price

    def price(subject: Subject, found: Sequence[Finding]) -> Estimate:
        priced.append(found)
        return before(subject, found)

    monkeypatch.setattr(fit, "price", price)
    assert outcome(look(request_of)) == "marginal"
    certain = [one for found in priced for one in found if one.rule_id == RULE and one.status == "affected"]
    assert len(certain) == 1
