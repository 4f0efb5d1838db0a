"""open-instruct's command lines."""

from __future__ import annotations

from tests.unit.frameworks.launch_script.written_commands import documents, facts, resolved


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
    assert (grpo.reader, facts(grpo)["training.zero_stage"], facts(grpo)["training.trainer"]) == (
        "open_instruct_rl",
        3,
        "grpo",
    )


def test_stage_3_of_reinforcement_learning_keeps_a_second_copy_of_the_weights_unless_told() -> None:
    words = "python open_instruct/grpo_fast.py --model_name_or_path m --deepspeed_stage"
    for options, ranks in (("3", 8), ("3 --deepspeed_zpg 1", 1), ("2", 1)):
        assert resolved(f"{words} {options}").get("training.zero_hpz_partition_size", 1) == ranks


def test_learners_of_reinforcement_learning_have_bfloat16_beside_engines_of_their_own() -> None:
    found = resolved("python open_instruct/grpo_fast.py --model_name_or_path m --deepspeed_stage 2")
    assert (found["training.param_dtype"], found["rollout.colocated"]) == ("bfloat16", False)
    assert (found["training.reference_model"], found["training.gradient_checkpointing"]) == (True, True)
    together = resolved(
        "python open_instruct/grpo_fast.py --model_name_or_path m --single_gpu_mode --load_ref_policy False"
    )
    assert (together["rollout.colocated"], together["training.reference_model"]) == (True, False)


def test_a_default_is_none_where_words_are_not_known() -> None:
    found = resolved("python open_instruct/grpo_fast.py --model_name_or_path m --deepspeed_stage 3 $MORE")
    assert "training.zero_hpz_partition_size" not in found


def test_the_script_tells_what_it_trains_by() -> None:
    words = "--model_name_or_path m --with_tracking --max_seq_length 2048"
    started = documents(f"accelerate launch open_instruct/dpo_tune_cache.py {words}")[0]
    assert facts(started)["training.trainer"] == "dpo"


def test_the_fast_script_is_told_by_its_record_and_its_file_not_read() -> None:
    words = "--model_name_or_path m --deepspeed_stage 3 --num_learners_per_node 8"
    told = documents(f"python open_instruct/grpo_fast.py {words}")[0]
    assert (told.reader, facts(told)["training.trainer"]) == ("open_instruct_rl", "grpo")
    assert "program" not in {kind for kind, _, _ in told.references}
    other = documents(f"python open_instruct/grpo_vllm_thread_ray_gtrl.py {words}")[0]
    assert "program" in {kind for kind, _, _ in other.references}
