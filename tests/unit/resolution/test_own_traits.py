"""What a program's code does is told by its own record, also where it runs the loop of another; a critic makes no logits."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.frameworks.recognise import read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests import ROOT


def value(file: str, role: str, name: str) -> Any:
    readings = read_configurations(str(ROOT / "fixtures/programs" / file), named=True)
    documents = [document for reading in readings for document in reading.documents]
    fact = resolve("run", rules=open_rules(), documents=documents).roles[role].get(name)
    return None if fact is None else fact.value


def test_a_program_that_runs_the_loop_of_another_has_traits_of_its_own() -> None:
    assert value("open-instruct.sh", "train", "training.framework") == "accelerate"
    assert value("open-instruct.sh", "train", "program.passes_labels") is True
    assert value("open-instruct.sh", "train", "program.uses_accelerate") is True
    assert value("deepspeed-chat.sh", "train", "program.never_runs") is not None
    assert value("deepspeed-chat.sh", "train", "program.use_cache") is False


@pytest.mark.parametrize("file", ["verl.sh", "openrlhf-ppo.sh"])
def test_a_critic_makes_no_logits(file: str) -> None:
    assert value(file, "actor", "program.makes_logits") is True
    assert value(file, "reference", "program.makes_logits") is True
    assert value(file, "critic", "program.makes_logits") is False
