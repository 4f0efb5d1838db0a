"""EasyR1's command lines."""

from __future__ import annotations

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
    assert facts(document, "actor")["training.optimizer"] == "adamw"
    assert not document.unread
