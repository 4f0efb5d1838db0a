"""A trace in the place of the closed form: what is laid over it, and what is said of the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, estimate, open_rules
from compatcheck.checking.estimates import TRACEABLE, EstimateOptions
from compatcheck.checking.tracer import Traced
from compatcheck.core.estimate import Component, Estimate, Phase, exactly
from compatcheck.core.units import GIB
from compatcheck.memory.closed_form.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.estimate_report import EstimateReport

RULE = "peft/dora-saves-a-weight-copy"
FACTS = """compatcheck: 1
packages: {transformers: "5.23.0", torch: "2.13.0", peft: "0.21.2"}
training: {framework: hf_trainer, trainer: causal_lm, sharding: none, mixed_precision: "no", param_dtype: bfloat16,
  micro_batch_size: 4, sequence_length: 2048, gradient_checkpointing: false, peft: dora, lora_rank: 8, lora_dropout: 0.1,
  lora_target_modules: [q_proj, v_proj]}
hardware: {world_size: 1}
"""


@pytest.fixture
def request_of(tmp_path: Path) -> Request:
    (tmp_path / "facts.yaml").write_text(FACTS)
    return Request(paths=(str(tmp_path / "facts.yaml"),), model="qwen2.5-0.5b")


def look(request_of: Request, ran: frozenset[str]) -> EstimateReport:
    parts = tuple(
        Component(kind, kind, exactly(size * GIB), "", "")
        for kind, size in {"parameters": 1, "activations": 20}.items()
    )
    phases = (Phase("backward", "train", parts),)
    traced = Traced(Estimate("traced", phases, judge(phases, None), (), ()), details=("said",), ran=ran)
    (report,) = estimate(request_of, open_rules(), {}, EstimateOptions(tracer=lambda _subject, _rules: traced)).reports
    return report


def test_what_a_trace_has_run_is_not_added_again(request_of: Request) -> None:
    (closed,) = estimate(request_of, open_rules(), {}).reports
    assert [one.rule_id for one in closed.estimate.regressions] == [RULE]
    assert [one.rule_id for one in look(request_of, frozenset()).estimate.regressions] == [RULE]
    traced = look(request_of, frozenset({"peft", "torch", "transformers"})).estimate
    assert traced.regressions == ()
    assert traced.allocated.expected == 21 * GIB


def test_it_is_said_which_is_shown_and_where_they_differ(request_of: Request) -> None:
    report = look(request_of, frozenset({"peft"}))
    assert report.estimate.method == "traced"
    differs, said = report.details
    assert differs == (
        "shown is the trace; in closed form 25.6 GiB are allocated, 21.7% more; furthest apart are logits in backward: "
        "13.9 GiB there, 0 B here"
    )
    assert said == "said"


@pytest.mark.parametrize("traceable", [True, False])
def test_a_run_that_could_be_traced_says_so(request_of: Request, traceable: bool) -> None:  # noqa: FBT001
    options = EstimateOptions(can_trace=lambda _subject, _rules: traceable)
    (report,) = estimate(request_of, open_rules(), {}, options).reports
    assert report.details == ((TRACEABLE,) if traceable else ())


def test_what_is_missing_beside_the_length_is_said_at_once(tmp_path: Path) -> None:
    text = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nfrom peft import LoraConfig, get_peft_model\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        "if flag():\n    model = get_peft_model(model, LoraConfig(r=8))\n"
        'Trainer(model=model, args=TrainingArguments(output_dir="o")).train()\n'
    )
    (tmp_path / "train.py").write_text(text)
    (report,) = estimate(Request(paths=(str(tmp_path / "train.py"),)), open_rules(), {}).reports
    assert report.estimate.needs == ("training.sequence_length", "training.peft")
