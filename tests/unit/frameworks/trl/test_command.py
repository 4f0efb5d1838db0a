"""TRL's command lines: told by the program, by its keys, and by the file it names."""

from __future__ import annotations

import pytest

from tests.unit.frameworks.launch_script.written_commands import documents, facts

HF = "--model_name_or_path m --output_dir o --per_device_train_batch_size 4 --learning_rate 1e-5 "


@pytest.mark.parametrize(
    ("program", "reader", "trainer"),
    [
        ("python examples/scripts/dpo.py", "trl", "dpo"),
        ("python trl/scripts/sft.py", "trl", "sft"),
        ("trl grpo", "trl", "grpo"),
        ("python train.py", "hf_trainer", None),
        ("python my/sft.py", "hf_trainer", None),
    ],
)
def test_the_trainer_is_told_by_the_program(program: str, reader: str, trainer: str | None) -> None:
    found = documents(f"{program} {HF}")[0]
    assert found.reader == reader
    assert facts(found).get("training.trainer") == trainer


def test_keys_of_a_trainer_tell_it_whatever_the_script_is_called() -> None:
    found = documents(
        f"accelerate launch train.py {HF} --num_generations 8 --use_vllm True --max_completion_length 512"
    )[0]
    assert (found.reader, facts(found)["training.trainer"]) == ("trl", "grpo")
    assert facts(found)["rollout.engine"] == "vllm"


@pytest.mark.parametrize(("program", "by_command"), [("trl sft", True), ("accelerate launch sft.py", None)])
def test_the_trl_command_imports_all_it_can_do(program: str, by_command: object) -> None:
    assert facts(documents(f"{program} {HF} --packing true")[-1]).get("run.trl_command") is by_command


def test_a_file_of_arguments_is_named_and_options_win_over_it() -> None:
    found = documents("accelerate launch scripts/run_sft.py recipes/config.yaml --load_in_4bit=true")[0]
    assert ("config", "recipes/config.yaml", "(argument)") in found.references
    assert facts(found)["model.quantization"] == "nf4"
    found = documents("trl sft --config c.yaml --num_processes 4")[0]
    assert ("config", "c.yaml", "--config") in found.references
