"""EasyR1's configurations."""

from __future__ import annotations

import pytest

from compatcheck.core.source import Source
from compatcheck.frameworks.easy_r1 import configuration as easy_r1
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import facts


def test_a_configuration_is_told_by_its_workers() -> None:
    data = {
        "worker": {"actor": {"offload": {"offload_params": True}}, "rollout": {}},
        "algorithm": {"adv_estimator": "grpo"},
    }
    assert easy_r1.recognise(data)
    assert facts(easy_r1.read(data, "c.yaml").documents[0], "actor")["training.offload_param"] == "cpu"


def test_what_a_value_interpolates_is_filled_in() -> None:
    data = {
        "data": {"rollout_batch_size": 64},
        "worker": {"actor": {"micro_batch_size_per_device_for_update": "${data.rollout_batch_size}"}, "rollout": {}},
    }
    (document,) = easy_r1.read(data, "c.yaml").documents
    assert facts(document, "actor")["training.micro_batch_size"] == 64


def test_batches_count_prompts_and_what_is_switched_off_weighs_nothing() -> None:
    data = {
        "worker": {"actor": {"global_batch_size": 128, "dynamic_batching": False}, "rollout": {"n": 5}},
        "algorithm": {"adv_estimator": "grpo", "kl_coef": 0.01, "disable_kl": True},
    }
    (document,) = easy_r1.read(data, "c.yaml").documents
    found = facts(document, "actor")
    assert (found["training.global_batch_size"], found["training.kl_coefficient"]) == (640, 0)
    data["worker"]["actor"]["dynamic_batching"] = True
    assert "training.global_batch_size" not in facts(easy_r1.read(data, "c.yaml").documents[0], "actor")


@pytest.mark.parametrize(
    ("kind", "frozen", "trained"),
    [
        ("qwen2_5_vl", True, 7_000),
        ("qwen2_5_vl", False, 8_000),
        ("gemma3", True, 8_000),  # has no `visual`: "No vision tower found."
    ],
)
def test_a_frozen_tower_is_not_trained(kind: str, trained: int, *, frozen: bool) -> None:
    data = {
        "worker": {"actor": {"model": {"freeze_vision_tower": frozen}}, "rollout": {}},
        "algorithm": {"adv_estimator": "grpo"},
    }
    (document,) = easy_r1.read(data, "c.yaml").documents
    model = {"model.model_type": kind, "model.parameters": 8_000, "model.vision_parameters": 1_000}
    settings = {name: (value, Source("x")) for name, value in model.items()}
    found = resolve("x", rules=open_rules(), documents=(document,), settings=settings).roles
    assert found["actor"]["model.trainable_parameters"].value == trained
    assert found["reference"]["model.trainable_parameters"].value == 0


@pytest.mark.parametrize(("in_loss", "coefficient"), [({}, 0.01), ({"use_kl_loss": False}, 0.001)])
def test_keys_of_early_releases_are_read_as_those_do(in_loss: dict[str, bool], coefficient: float) -> None:
    actor = {"offload": {"param_offload": True}, "global_batch_size": 16, "kl_loss_coef": 0.01, **in_loss}
    worker = {"actor": actor, "rollout": {"n": 8}, "ref": {"offload": {"param_offload": True}}}
    data = {"worker": worker, "algorithm": {"adv_estimator": "grpo", "kl_coef": 0.001}}
    (document,) = easy_r1.read(data, "c.yaml").documents
    found = facts(document, "actor")
    assert (found["training.offload_param"], found["training.global_batch_size"]) == ("cpu", 128)
    assert found["training.kl_coefficient"] == coefficient
    assert facts(document, "reference")["training.offload_param"] == "cpu"
    assert (found["program.computes_entropy"], found["program.avoids_record_streams"]) == ("always", False)
    assert not document.unread
    (later,) = easy_r1.read({"worker": {"actor": {}, "rollout": {}}}, "c.yaml").documents
    assert "program.computes_entropy" not in facts(later)
