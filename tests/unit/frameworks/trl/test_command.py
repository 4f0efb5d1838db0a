"""TRL's command lines: told by the program, by its keys, and by the file it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize(
    "program", ["accelerate launch --num_processes 4 trl/scripts/dpo.py", "python -m trl.scripts.dpo"]
)
def test_a_script_of_trl_is_told_by_its_path_however_few_its_options(program: str) -> None:
    (found, *_) = documents(f"{program} --model_name_or_path m --max_length 2048 --bf16")
    assert (found.reader, facts(found)["training.trainer"]) == ("trl", "dpo")


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


@pytest.mark.parametrize(
    ("command", "reader"),
    [("trl sft", "trl"), ("llamafactory-cli train", "llamafactory"), (f"python train.py {HF}", "hf_trainer")],
)
def test_a_file_that_could_be_any_trainers_is_the_ones_that_is_given_it(
    tmp_path: Path, command: str, reader: str
) -> None:
    (tmp_path / "c.yaml").write_text("per_device_train_batch_size: 1\nlearning_rate: 0.0001\nbf16: true\n")
    option = "" if reader == "llamafactory" else "--config "
    (tmp_path / "run.sh").write_text(f"{command} {option}c.yaml\n")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    followed = follow_references(reading.documents, open_rules(), {})
    assert [one.reader for one in followed if one.source.path.endswith("c.yaml")] == [reader]


def test_a_key_of_such_a_file_counts_where_the_release_has_it(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "per_device_train_batch_size: 1\nlearning_rate: 0.0001\nactivation_offloading: true\n"
    )
    (tmp_path / "run.sh").write_text("trl sft --config c.yaml --dataset_name d\n")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    rules = open_rules()
    followed = follow_references(reading.documents, rules, {})
    for version, stated in (("0.17.0", False), ("0.18.0", True)):
        stack = Environment("s", {"trl": Package("trl", version, Source("requirements.txt"))}, complete=False)
        roles = resolve("s", rules=rules, environment=stack, documents=followed).roles
        assert ("training.activation_offloading" in roles["train"]) is stated


@pytest.mark.parametrize(("more", "states"), [("", True), ("mine_alone: true\n", False)])
def test_what_is_stated_and_may_be_replaced_is_said_to_be(tmp_path: Path, more: str, *, states: bool) -> None:
    """A key that nobody knows may bring adapters and ZeRO-3, with which TRL overrides an explicit false."""
    path = tmp_path / "grpo.yaml"
    text = "model_name_or_path: m\nnum_generations: 6\nmax_completion_length: 64\nper_device_train_batch_size: 6\n"
    path.write_text(
        f"{text}gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n{more}",
        encoding="utf-8",
    )
    (reading,) = read_configurations(str(path), named=True)
    rules = open_rules()
    followed = follow_references(reading.documents, rules, {})
    subject = resolve("s", rules=rules, documents=followed)
    name = "training.use_reentrant"
    assert (name in subject.roles["train"]) is states
    assert (name in {fact for fact, _, _ in subject.unresolved}) is not states


@pytest.mark.parametrize(
    ("program", "script"),
    [
        ("trl sft", "sft"),
        ("accelerate launch trl/scripts/dpo.py", "dpo"),
        ("python -m trl.scripts.sft", "sft"),
        ("accelerate launch sft.py", None),
    ],
)
def test_a_script_of_trl_hands_the_arguments_on(program: str, script: str | None) -> None:
    every = [facts(one) for one in documents(f"{program} {HF} --packing true")]
    assert next((one["run.trl_script"] for one in every if "run.trl_script" in one), None) == script
