"""DeepSpeed-Chat's command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, gather, open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts, resolved

if TYPE_CHECKING:
    from pathlib import Path


def test_deepspeed_chat_in_one_step_and_in_reinforcement_learning() -> None:
    one = (
        "deepspeed main.py --model_name_or_path m --data_split 2,4,4 --zero_stage 2 "
        "--per_device_train_batch_size 4 --offload --lora_dim 128"
    )
    document = documents(one)[0]
    assert document.reader == "deepspeed_chat"
    found = resolved(one)
    assert (found["training.zero_stage"], found["training.offload_optimizer"], found["training.mixed_precision"]) == (
        2,
        "cpu",
        "fp16",
    )
    assert (found["training.peft"], found["training.sequence_length"], found["training.gradient_checkpointing"]) == (
        "lora",
        512,
        False,
    )
    three = (
        "deepspeed main.py --actor_model_name_or_path a "
        "--critic_model_name_or_path c --actor_zero_stage 3 --critic_gradient_checkpointing"
    )
    document = documents(three)[0]
    actor, critic = resolved(three, "actor"), resolved(three, "critic")
    assert (actor["training.zero_stage"], critic["training.zero_stage"]) == (3, 0)
    assert (actor["training.gradient_checkpointing"], critic["training.gradient_checkpointing"]) == (False, True)
    assert [(kind, name) for kind, name, _ in document.references[:2]] == [("model", "a"), ("model:critic", "c")]


@pytest.mark.parametrize(
    ("path", "option", "trainer"),
    [
        ("training/step1_supervised_finetuning/main.py", "", "sft"),
        ("training/step2_dpo_finetuning/main.py", "", "dpo"),
        ("main.py", "--num_padding_at_beginning 1", "reward"),
        ("main.py", "--offload_reference_model --beta 0.1", "dpo"),
        ("main.py", "--sft_only_data_path a", "sft"),
        ("main.py", "", None),
    ],
)
def test_what_a_step_trains_is_told_by_its_folder_or_by_an_option_of_its_own(
    path: str, option: str, trainer: str | None
) -> None:
    run = f"deepspeed {path} --model_name_or_path m --data_split 2,4,4 --zero_stage 2 {option}"
    assert facts(documents(run)[0]).get("training.trainer") == trainer


def test_a_reward_model_has_no_logits_and_no_head(tmp_path: Path) -> None:
    script = tmp_path / "step2_reward_model_finetuning" / "run.sh"
    script.parent.mkdir()
    words = "--data_path a/b --model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_len 512"
    script.write_text(f"deepspeed --num_gpus 8 main.py {words} --zero_stage 3 --deepspeed\n", encoding="utf-8")
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    found = {name: fact.value for name, fact in subject.roles["train"].items()}
    assert (found["program.makes_logits"], found["program.computes_loss"]) == (False, "program")
    assert found["model.trainable_parameters"] == found["model.parameters"] == 6_738_415_616 - 131_072_000 + 4096


def test_the_hybrid_engine_is_not_the_models_own_generation() -> None:
    run = "deepspeed main.py --actor_model_name_or_path a --critic_model_name_or_path c --actor_zero_stage 3"
    assert resolved(run, "actor")["rollout.engine"] == "hf"
    hybrid = documents(f"{run} --enable_hybrid_engine --inference_tp_size 8")[0]
    assert "rollout.engine" not in facts(hybrid)
    assert ("rollout.engine", "enable_hybrid_engine") in {(entry.fact, entry.key) for entry in hybrid.unresolved}


def test_the_configuration_that_its_code_makes_replaces_deepspeeds_defaults(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    words = "--data_path a/b --model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_len 512"
    script.write_text(f"deepspeed --num_gpus 8 main.py {words} --zero_stage 3 --deepspeed\n", encoding="utf-8")
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    found = {name.removeprefix("training."): fact.value for name, fact in subject.roles["train"].items()}
    assert found["optimizer"] == "adamw"
    assert (found["overlap_comm"], found["memory_efficient_linear"]) == (True, False)
    assert (found["prefetch_bucket_size"], found["max_live_parameters"]) == (30_000_000, 30_000_000)
    assert found["param_persistence_threshold"] == 10_000
    assert found["reduce_bucket_size"] == 500_000_000
