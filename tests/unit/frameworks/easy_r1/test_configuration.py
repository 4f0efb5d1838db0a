"""EasyR1's configurations."""

from __future__ import annotations

from compatcheck.frameworks.easy_r1 import configuration as easy_r1
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


def test_a_frozen_tower_leaves_open_what_is_trained() -> None:
    data = {
        "worker": {"actor": {"model": {"freeze_vision_tower": True}}, "rollout": {}},
        "algorithm": {"adv_estimator": "grpo"},
    }
    (document,) = easy_r1.read(data, "c.yaml").documents
    assert [one.fact for one in document.unresolved] == ["model.trainable_parameters"]
