"""ROLL's command lines name a file, beside the script that they start."""

from __future__ import annotations

from compatcheck.frameworks.composition import compose
from compatcheck.frameworks.roll import configuration as roll
from tests.unit.frameworks.launch_script.written_commands import documents, facts
from tests.unit.frameworks.roll.test_configuration import configure

START = "python examples/start_rlvr_pipeline.py"


def test_the_file_that_a_command_names_is_read_with_it() -> None:
    (command, *_) = documents(f"{START} --config_path qwen --config_name rlvr_config")
    assert ("roll", "examples/qwen/rlvr_config.yaml", "--config_name") in command.references
    (file,) = roll.read(configure(), "examples/qwen/rlvr_config.yaml").documents
    command, file = compose((command, file))
    assert command.reader == file.reader == "roll"
    assert facts(file)["training.trainer"] == "grpo"
    assert not any(name.startswith("training.") for name in facts(command))
    assert not command.unread


def test_a_name_that_nobody_knows_leaves_everything_open() -> None:
    assert documents(f"{START} --config_path qwen --config_name $NAME")[0].gaps


def test_other_scripts_are_not_rolls() -> None:
    assert documents("torchrun start_pipeline.py --config_name c")[0].reader != "roll"
