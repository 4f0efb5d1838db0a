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
