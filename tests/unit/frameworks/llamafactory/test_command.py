"""LLaMA-Factory's command lines."""

from __future__ import annotations

from tests.unit.frameworks.launch_script.written_commands import documents, facts


def test_options_and_words_lie_over_a_file() -> None:
    found = documents("llamafactory-cli train c.yaml per_device_train_batch_size=2 quantization_bit=4")[0]
    assert found.reader == "llamafactory"
    assert facts(found)["training.micro_batch_size"] == 2
    assert facts(found)["model.quantization"] == "nf4"
    assert ("config", "c.yaml", "(argument)") in found.references
    flags = documents(
        "deepspeed --num_gpus 8 src/train_bash.py --stage sft --finetuning_type lora --cutoff_len 2048 --model_name_or_path m"
    )[0]
    assert flags.reader == "llamafactory"
    assert facts(flags)["training.sequence_length"] == 2048


def test_a_script_of_another_project_that_is_called_like_one_of_its_old_ones_is_not_its() -> None:
    started = "deepspeed --num_gpus 8 src/train/train_sft.py --deepspeed z.json --bf16 True"
    assert [one.reader for one in documents(f"{started} --model_id m")] != ["llamafactory"]
    assert "llamafactory" not in {one.reader for one in documents(f"{started} --model_id m --output_dir o")}
    assert documents(f"{started} --model_name_or_path m --finetuning_type lora")[0].reader == "llamafactory"
