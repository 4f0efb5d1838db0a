"""AReaL's command lines."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.areal import configuration as areal
from compatcheck.frameworks.composition import compose
from tests.unit.frameworks.areal.test_configuration import RL
from tests.unit.frameworks.launch_script.written_commands import documents, facts, runs


@pytest.mark.parametrize(
    "command",
    [
        "python3 examples/math/gsm8k_rl.py --config c.yaml scheduler.type=local",
        "python3 -m areal.infra.launcher.local examples/math/gsm8k_rl.py --config c.yaml",
        "python3 -m areal.launcher.ray train.py --config=c.yaml actor.path=m",
    ],
)
def test_a_command_names_its_file(command: str) -> None:
    document = next(one for one in documents(command) if one.reader == "areal")
    assert ("config", "c.yaml", "--config") in document.references
    assert not document.unread


def test_another_script_with_a_file_is_none_of_it() -> None:
    assert not any(
        one.reader == "areal" for run in runs("python3 train.py --config c.yaml lr=1") for one in run.documents
    )


def test_words_of_a_command_win_over_its_file() -> None:
    (written,) = areal.read(RL, "c.yaml").documents
    words = "actor.backend=fsdp:d8 actor.mb_spec.max_tokens_per_mb=4096 scheduler.type=local"
    command = next(one for one in documents(f"python3 train.py --config c.yaml {words}") if one.reader == "areal")
    command, written = compose((command, written))
    assert facts(command, "actor")["hardware.world_size"] == 8
    assert facts(command, "actor")["training.micro_batch_tokens"] == 4096
    assert "hardware.world_size" not in facts(written, "actor")
    assert "training.micro_batch_tokens" not in facts(written, "actor")
    assert facts(written, "actor")["training.gradient_checkpointing"] is True
    assert facts(command)["training.sequence_length"] == 4096
    assert facts(written)["rollout.engine"] == "sglang"
