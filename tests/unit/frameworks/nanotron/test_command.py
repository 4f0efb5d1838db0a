"""nanotron's command lines name a file."""

from __future__ import annotations

import pytest

from tests.unit.frameworks.launch_script.written_commands import documents


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node=8 run_train.py --config-file examples/config_tiny_llama.yaml",
        "python examples/doremi/train_doremi.py --config-file=examples/config_tiny_llama.yaml",
    ],
)
def test_the_file_that_a_command_names_is_read_with_it(command: str) -> None:
    found = documents(command)[0]
    assert ("nanotron", "examples/config_tiny_llama.yaml", "--config-file") in found.references
    assert not found.unresolved
    assert not found.gaps


def test_a_name_that_nobody_knows_leaves_what_the_file_decides_open() -> None:
    found = documents("torchrun run_train.py --config-file $FILE")[0]
    assert {"model.hidden_size", "training.micro_batch_size"} <= {one.fact for one in found.unresolved}


def test_other_scripts_and_other_options_are_not_nanotrons() -> None:
    assert documents("torchrun run_train.py --config c.yaml")[0].reader != "nanotron"
    assert documents("torchrun train.py --config-file c.yaml")[0].reader != "nanotron"
    assert documents("torchrun run_train.py --config-file c.yaml --resume 1")[0].unread == (("resume", None),)
