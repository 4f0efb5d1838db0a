"""open-instruct's command lines."""

from __future__ import annotations

from tests.unit.frameworks.launch_script.written_commands import documents, facts


def test_tuning_and_reinforcement_learning() -> None:
    tulu = documents(
        "accelerate launch open_instruct/finetune.py --model_name_or_path m "
        "--with_tracking --max_seq_length 4096 --use_flash_attn"
    )[0]
    assert tulu.reader == "open_instruct"
    assert facts(tulu)["training.trainer"] == "sft"
    grpo = documents(
        "python open_instruct/grpo_fast.py --model_name_or_path m --per_device_train_batch_size 1 --deepspeed_stage 3 --beta 0.01"
    )[0]
    assert (grpo.reader, facts(grpo)["training.zero_stage"], facts(grpo)["training.trainer"]) == ("script", 3, "grpo")


def test_stage_3_of_reinforcement_learning_keeps_a_second_copy_of_the_weights_unless_told() -> None:
    words = "python open_instruct/grpo_fast.py --model_name_or_path m --deepspeed_stage"
    for options, ranks in (("3", 8), ("3 --deepspeed_zpg 1", 1), ("2", None)):
        assert facts(documents(f"{words} {options}")[0]).get("training.zero_hpz_partition_size") == ranks


def test_the_script_tells_what_it_trains_by() -> None:
    words = "--model_name_or_path m --with_tracking --max_seq_length 2048"
    started = documents(f"accelerate launch open_instruct/dpo_tune_cache.py {words}")[0]
    assert facts(started)["training.trainer"] == "dpo"


def test_what_the_fast_script_does_is_told_and_its_file_not_read() -> None:
    words = "--model_name_or_path m --deepspeed_stage 3 --num_learners_per_node 8"
    told = documents(f"python open_instruct/grpo_fast.py {words}")[0]
    assert facts(told)["training.gradient_checkpointing"] is True
    assert facts(told)["training.peft"] is None
    assert (facts(told)["rollout.colocated"], facts(told)["training.reference_model"]) == (False, True)
    assert "program" not in {kind for kind, _, _ in told.references}
    chosen = documents(f"python open_instruct/grpo_fast.py {words} --single_gpu_mode --load_ref_policy False")[0]
    assert (facts(chosen)["rollout.colocated"], facts(chosen)["training.reference_model"]) == (True, False)
    other = documents(f"python open_instruct/grpo_vllm_thread_ray_gtrl.py {words}")[0]
    assert "training.peft" not in facts(other)
    assert "program" in {kind for kind, _, _ in other.references}
