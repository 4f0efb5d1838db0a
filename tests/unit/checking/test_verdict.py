"""What of a subject's findings fails, is advice, or is only counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, check, open_rules
from compatcheck.checking.verdict import Resolutions, place
from compatcheck.resolution.resolve import resolve
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.report import Finding

SFT = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
bf16: true
per_device_train_batch_size: 2
gradient_checkpointing: true
max_length: 4096
output_dir: out
"""
DEEPSPEED = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 2}'


@pytest.fixture
def look(tmp_path: Path):
    def look(requirements: str, *, gpu: str | None = None, **files: str) -> dict[str, Finding]:
        (tmp_path / "requirements.txt").write_text("\n".join(requirements.split()) + "\n")
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        report = check(Request(paths=(str(tmp_path),), gpu=gpu, here=False), open_rules(), {})
        return {finding.rule_id: finding for finding in report.findings}

    return look


STACK = "torch==2.6.0 transformers==4.49.0 accelerate==1.4.0 trl==0.15.2"


def test_what_no_release_changes_is_advice_and_does_not_fail(look) -> None:
    found = look(
        "llamafactory==0.9.3 torch==2.6.0 transformers==4.52.4 accelerate==1.7.0",
        a__yaml=SFT + "stage: sft\nfinetuning_type: full\ncutoff_len: 4096\ntemplate: qwen\n",
        gpu="8xA100-80GB",
    )
    advice = found["transformers/causal-lm-loss-in-float32"]
    assert (advice.status, advice.severity, advice.advice, advice.fails) == ("affected", "high", True, False)


def test_what_waits_for_a_fact_that_no_file_states_is_only_counted(look) -> None:
    found = look(f"{STACK} deepspeed==0.16.9", a__yaml=SFT + "deepspeed: ds.json\n", ds__json=DEEPSPEED)
    assert found["deepspeed/zero3-model-kept-in-module-stack"].needs == ("run.repeated_initialize",)
    assert found["deepspeed/zero3-model-kept-in-module-stack"].folded
    sized = found["transformers/causal-lm-loss-in-float32"]
    assert (sized.status, sized.folded) == ("possible", False)


def test_a_sharding_that_a_described_run_does_not_name_is_only_counted(look) -> None:
    rule = "accelerate/fsdp2-upcasts-frozen-weights"
    assert look("torch==2.6.0 transformers==4.49.0 accelerate==1.6.0")[rule].folded is False
    assert look("torch==2.6.0 transformers==4.49.0 accelerate==1.6.0", a__yaml=SFT)[rule].folded is True


def test_one_rank_shards_nothing(look) -> None:
    rule = "accelerate/fsdp2-upcasts-frozen-weights"
    assert rule in look(STACK.replace("1.4.0", "1.6.0"), gpu="8xA100-80GB")
    assert rule not in look(STACK.replace("1.4.0", "1.6.0"), gpu="1xA100-80GB")


def test_a_build_without_a_device_has_no_finding_about_one(look) -> None:
    assert "transformers/attention-output-kept-twice" in look("torch==2.6.0+cu124 transformers==4.51.3")
    found = look("torch==2.6.0+cpu transformers==4.51.3")
    assert {finding.impact.memory for finding in found.values() if finding.impact is not None} <= {"host"}


def test_an_engine_alone_runs_no_training_code(look) -> None:
    pins = "vllm==0.11.0 torch==2.8.0 transformers==4.57.1"
    assert any(rule.startswith("transformers/") for rule in look(pins))
    found = look(pins, serve__sh="vllm serve Qwen/Qwen2.5-7B-Instruct\n")
    assert {rule.partition("/")[0] for rule in found} <= {"vllm", "torch", "nvidia"}
    assert not {"backward", "step"} & {finding.impact.phase for finding in found.values() if finding.impact}
    both = look(
        pins,
        serve__sh="vllm serve Qwen/Qwen2.5-7B-Instruct &\ntorchrun a.py --output_dir o --learning_rate 1e-5\n",
    )
    assert any(rule.startswith("transformers/") for rule in both)


def test_nobody_asks_for_settings_of_training_where_an_engine_alone_is_started(look) -> None:
    pins = "vllm==0.11.0 torch==2.8.0 transformers==4.57.1"
    found = look(pins, serve__sh="vllm serve Qwen/Qwen2.5-7B-Instruct\n", gpu="T4")
    assert not [rule for rule, one in found.items() if any(need.startswith("training.") for need in one.needs)]


def test_what_a_run_lacks_that_may_not_fit_is_what_the_estimate_says_at_worst() -> None:
    case = str(ROOT / "fixtures/cases/search-r1-32b")
    report = check(Request(paths=(case,), here=False), open_rules(), {})
    estimate = report.subjects[0].estimate
    assert estimate is not None
    assert estimate.verdict.limit_bytes is not None
    (finding,) = (one for one in report.findings if one.rule_id == "_stack/run-may-not-fit")
    assert finding.impact is not None
    assert finding.impact.expected_bytes == estimate.needed.high - estimate.verdict.limit_bytes


def test_devices_are_stated_as_options_state_them() -> None:
    subject = place(resolve("run", rules=open_rules()), {"hardware.compute_capability": 9.0})
    assert {facts["hardware.compute_capability"].origin for facts in subject.roles.values()} == {"set"}


def test_what_is_supposed_is_resolved_once_for_all_devices() -> None:
    subject, state = resolve("run", rules=open_rules()), Resolutions(open_rules())
    stated = {"training.sharding": "ddp"}
    first = state(subject, stated)
    assert first.roles["train"]["training.sharding"].value == "ddp"
    assert state(place(subject, {"hardware.world_size": 2}), stated) is first
    assert state(subject, {"training.sharding": "none"}) is not first
    assert state(first, {"training.peft": None}).settings.keys() == {"training.sharding", "training.peft"}


def test_advice_that_nothing_here_can_follow_is_only_counted(look) -> None:
    found = look(
        "openrlhf==0.9.6 deepspeed==0.18.8 torch==2.8.0",
        run__sh="deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-1.5B --dataset d --zero_stage 3"
        " --param_dtype bf16 --max_len 2048 --micro_train_batch_size 1 --gradient_checkpointing\n",
        gpu="8xA100-80GB",
    )
    bucket = found["deepspeed/large-reduce-bucket"]
    assert (bucket.status, bucket.advice, bucket.remedies, bucket.folded) == ("affected", True, (), True)


def test_advice_that_a_key_of_the_run_can_follow_is_read(look) -> None:
    found = look(
        "transformers==4.52.4 torch==2.8.0 deepspeed==0.18.8 accelerate==1.7.0",
        a__yaml=SFT.replace("7B", "1.5B") + "deepspeed: ds.json\n",
        ds__json=DEEPSPEED,
        gpu="8xA100-80GB",
    )
    bucket = found["deepspeed/large-reduce-bucket"]
    assert bucket.remedies
    assert not bucket.folded


def test_advice_about_an_update_that_leaves_room_is_only_counted(look) -> None:
    words = (
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B"
        " data.max_prompt_length=512 data.max_response_length=1024 actor_rollout_ref.actor.ppo_micro_batch_size={}"
        " actor_rollout_ref.model.enable_gradient_checkpointing=True trainer.n_gpus_per_node=8"
        " actor_rollout_ref.rollout.gpu_memory_utilization=0.6\n"
    )
    rule = "_stack/micro-batch-key-counts-all-ranks"
    few = look("verl==0.3.0.post1 torch==2.6.0 vllm==0.8.2", run__sh=words.format(16), gpu="8xA100-80GB")[rule]
    assert (few.status, few.advice, few.folded) == ("affected", True, True)  # the rollout needs more
    many = look("verl==0.3.0.post1 torch==2.6.0 vllm==0.8.2", run__sh=words.format(512), gpu="8xA100-80GB")[rule]
    assert (many.status, many.folded) == ("affected", False)


def test_two_releases_that_do_not_go_together_are_shown_unless_a_run_shows_no_sign_of_them(look) -> None:
    stack, rule = "vllm==0.9.2 transformers==4.55.0", "vllm/registers-model-type-that-transformers-has"
    assert (look(stack)[rule].status, look(stack)[rule].folded) == ("possible", False)
    assert look(stack, a__yaml=SFT)[rule].folded
