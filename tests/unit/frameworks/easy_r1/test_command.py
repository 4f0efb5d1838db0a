"""EasyR1's command lines."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.composition import compose
from compatcheck.frameworks.easy_r1 import configuration as easy_r1
from tests.unit.frameworks.launch_script.written_commands import documents, facts


def test_a_file_and_words_over_it() -> None:
    words = (
        "config=c.yaml data.max_response_length=2048 "
        "worker.actor.model.model_path=m trainer.n_gpus_per_node=8 worker.rollout.n=5"
    )
    document = documents(
        f"python3 -m verl.trainer.main {words} worker.actor.micro_batch_size_per_device_for_experience=2"
    )[0]
    assert document.reader == "easy-r1"
    assert facts(document)["rollout.n"] == 5
    assert facts(document, "reference")["training.micro_batch_size"] == 2
    assert set(document.references) == {("config", "c.yaml", "config"), ("model", "m", "worker.actor.model.model_path")}


def test_the_strategy_of_the_optimizer_is_read() -> None:
    words = "worker.actor.fsdp.torch_dtype=bf16 worker.actor.optim.strategy=adamw_bf16"
    document = documents(f"python3 -m verl.trainer.main config=c.yaml {words}")[0]
    assert facts(document, "actor")["training.optimizer"] == "adamw_kahan"
    assert not document.unread


@pytest.mark.parametrize(
    ("file", "words", "there"),
    [("gae", "", True), ("gae", "grpo", False), ("grpo", "gae", True), ("grpo", "", False)],
)
def test_the_value_in_force_decides_whether_there_is_a_critic(file: str, words: str, *, there: bool) -> None:
    data = {
        "algorithm": {"adv_estimator": file},
        "worker": {"actor": {}, "rollout": {"n": 4}, "critic": {"micro_batch_size_per_device_for_update": 2}},
    }
    (written,) = easy_r1.read(data, "c.yaml").documents
    given = f"algorithm.adv_estimator={words}" if words else "worker.rollout.n=8"
    (command,) = documents(f"python3 -m verl.trainer.main config=c.yaml {given}")
    command, written = compose((command, written))
    assert any(one.role == "critic" for one in written.statements) is there
    assert ("rollout.n" in facts(written)) is bool(words)
