"""The commands in the documentation of a script of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script.documentation import find_commands
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.stated_facts import facts

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = '''# Copyright
"""
# Full, on 8 devices: don't change
accelerate launch \\
    --num_processes 8 \\
    examples/sft.py \\
    --model_name_or_path Qwen/Qwen3-0.6B \\
    --per_device_train_batch_size 2

python other.py --per_device_train_batch_size 64

    $ python examples/sft.py --per_device_train_batch_size 4 --use_peft"""
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser

if __name__ == "__main__":
    training_args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
    training_args.gradient_checkpointing = True
    SFTTrainer(model=model_args.model_name_or_path, args=training_args).train()
'''


def write(directory: Path, text: str) -> str:
    path = directory / "examples" / "sft.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_commands_are_found_at_their_lines(tmp_path: Path) -> None:
    lines = find_commands(write(tmp_path, SCRIPT)).splitlines()
    assert [number for number, line in enumerate(lines, 1) if line] == [4, 5, 6, 7, 8, 10, 12]
    assert lines[11] == "python examples/sft.py --per_device_train_batch_size 4 --use_peft"


def test_each_command_that_starts_the_script_is_a_run_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, SCRIPT)
    first, second = read_configurations(path, named=True)
    assert [reading.label for reading in (first, second)] == [f"{path}:4", f"{path}:12"]
    assert [reading.notes for reading in (first, second)] == [
        (f"started as its documentation shows, line {line}",) for line in (4, 12)
    ]
    assert facts(first.documents[0])["training.micro_batch_size"] == 2
    assert facts(second.documents[0])["training.micro_batch_size"] == 4
    followed = follow_references(first.documents, open_rules(()), {})
    assert "sft" in [facts(document).get("training.trainer") for document in followed], (
        "its code is read beside the command"
    )
    assert not any("this very file" in entry.reason for document in followed for entry in document.skipped)


def test_a_script_that_shows_no_command_of_its_own_is_read_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path, SCRIPT.replace("examples/sft.py", "examples/dpo.py"))
    (reading,) = read_configurations(path, named=True)
    assert not reading.is_launch
