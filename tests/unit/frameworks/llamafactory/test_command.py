"""LLaMA-Factory's command lines."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("program", "options", "reader"),
    [
        ("src/train_sft.py", "--finetuning_type lora", "llamafactory"),
        ("-m llamafactory.launcher", "", "llamafactory"),
        ("/opt/LLaMA-Factory/src/llamafactory/launcher.py", "", "llamafactory"),
        ("train_sft.py", "--bf16", "hf_trainer"),
        ("experiments/llamafactory_baseline/train.py", "--bf16", "hf_trainer"),
    ],
)
def test_a_script_of_ones_own_is_not_told_by_a_common_name(program, options, reader) -> None:
    (found, *_) = documents(f"torchrun --nproc_per_node 8 {program} --per_device_train_batch_size 4 {options}")
    assert found.reader == reader


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("llamafactory-cli train c.yaml", True),
        ("accelerate launch -m llamafactory.launcher c.yaml", False),
    ],
)
def test_variables_of_its_own_launcher_are_not_those_of_another(command: str, *, own: bool) -> None:
    found = documents(command)[0]
    assert any(one.key == "(by another launcher)" for one in found.statements) is not own
    assert (facts(found).get("program.avoids_record_streams") is False) is not own
