"""The probes about DeepSpeed: arithmetic of their predictions, and what they find in releases known to be good and bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.rules.vocabulary import vocabulary

if TYPE_CHECKING:
    from compatcheck.lab.environments.overlay import Overlays
    from compatcheck.lab.measurement import Measurement

PROBES = (
    "bf16_optimizer_gradients",
    "engine_recreate",
    "zero0_frozen_master",
    "zero12_offload_step",
    "zero3_forward_window",
    "zero3_master_copy",
    "zero3_release",
    "zero_reduce_buffers",
)
HEALTHY = "0.19.8"
CHANGES = [
    ("bf16_optimizer_gradients", "0.16.4", {}, "good"),
    ("bf16_optimizer_gradients", "0.16.5", {}, "bad"),
    ("bf16_optimizer_gradients", "0.18.5", {"zero_stage": 1}, "bad"),
    ("bf16_optimizer_gradients", "0.19.8", {"zero_stage": 1, "micro_batches": 1}, "good"),
    ("zero0_frozen_master", "0.17.5", {}, "good"),
    ("zero0_frozen_master", "0.17.6", {}, "bad"),
    ("zero0_frozen_master", "0.19.0", {}, "bad"),
    ("zero0_frozen_master", "0.19.0", {"optimizer_over": "trainable"}, "good"),
    ("zero0_frozen_master", "0.19.1", {}, "good"),
    ("zero3_release", "0.16.7", {}, "bad"),
    ("zero3_release", "0.16.8", {}, "good"),
    ("zero3_release", "0.16.7", {"checkpointing": "reentrant"}, "good"),
    ("zero3_release", "0.16.7", {"checkpointing": "none", "no_grad_forward": "between"}, "good"),
    ("zero3_release", "0.16.8", {"checkpointing": "none", "no_grad_forward": "between"}, "bad"),
    ("zero3_release", "0.16.8", {"checkpointing": "none", "no_grad_forward": "before"}, "good"),
    ("zero3_master_copy", "0.18.1", {}, "bad"),
    ("zero3_master_copy", "0.18.2", {}, "good"),
    ("zero3_master_copy", "0.18.3", {}, "bad"),
    ("zero3_forward_window", "0.19.3", {}, "bad"),
    ("zero3_forward_window", "0.19.4", {}, "good"),
    ("zero3_forward_window", "0.19.3", {"checkpointing": True}, "good"),
    ("zero3_forward_window", "0.19.4", {"adapters": True}, "good"),
    ("zero3_forward_window", "0.19.3", {"adapters": True, "zero_init": True}, "good"),
    ("zero3_forward_window", "0.19.8", {"adapters": True, "memory_efficient_linear": False}, "good"),
    ("zero12_offload_step", "0.16.9", {}, "bad"),
    ("zero12_offload_step", "0.17.0", {}, "good"),
    ("engine_recreate", "0.14.4", {"keep_model": True}, "bad"),
    ("engine_recreate", "0.14.5", {"keep_model": True}, "good"),
    ("engine_recreate", "0.16.4", {"keep_model": True}, "good"),
    ("engine_recreate", "0.16.5", {"keep_model": True}, "bad"),
    ("engine_recreate", "0.19.8", {"zero_stage": 3}, "bad"),
]


def predict(name: str, **parameters: Any) -> dict[str, float]:
    probe = find_probe(name)
    return probe.module.predict(probe.complete(parameters))


def test_a_healthy_release_holds_one_matrix_in_backward_and_nothing_after_it() -> None:
    assert predict("zero3_release", hidden_size=128, vocab_size=512) == {
        "alive_after_backward_bytes": 0,
        "gathered_in_backward_bytes": 2 * 512 * 128,
        "kept_parameter_bytes": 0,
        "modules_with_open_counters": 0,
    }


def test_stage_2_keeps_the_gradients_of_a_share() -> None:
    parameters = {"zero_stage": 2, "layers": 1, "hidden_size": 128, "vocab_size": 512}
    elements = 16 * 128 * 128 + 2 * 128 + 512 * 128
    assert predict("zero3_release", **parameters) == {"alive_after_backward_bytes": elements}


@pytest.mark.parametrize(
    ("weights", "bytes_"), [("bfloat16", 18), ("float32", 20), ("autocast", 18), ("bfloat16-masters", 10)]
)
def test_static_bytes_per_parameter_on_one_rank(weights: str, bytes_: int) -> None:
    elements = 6 * 256 * 256
    assert predict("zero3_master_copy", weights=weights)["static_bytes"] == bytes_ * elements


def test_a_persistent_model_stays_whole_beside_a_rank_s_share() -> None:
    shared = predict("zero3_master_copy", weights="bfloat16", world_size=2)["static_bytes"]
    whole = predict("zero3_master_copy", weights="bfloat16", world_size=2, persistent=True)["static_bytes"]
    assert whole - shared == 2 * 6 * 256 * 256


def test_torch_s_linear_keeps_all_weights_until_backward() -> None:
    released = predict("zero3_forward_window")["alive_after_forward_bytes"]
    kept = predict("zero3_forward_window", memory_efficient_linear=False)["alive_after_forward_bytes"]
    assert released == 2 * 6 * 8 * 256
    assert kept - released == 2 * 6 * 256 * 256


def test_deepspeed_s_linear_keeps_what_frozen_layers_take() -> None:
    own, torchs = (
        predict("zero3_forward_window", adapters=True, world_size=1, memory_efficient_linear=linear)[
            "alive_after_forward_bytes"
        ]
        for linear in (True, False)
    )
    assert own - torchs == 2 * 3 * 8 * 256
    assert own == 2 * 8 * (6 * 256 + 3 * 8)
    weights = predict("zero3_forward_window", adapters=True, memory_efficient_linear=False)["alive_after_forward_bytes"]
    assert weights - torchs == 2 * (6 * 256 * 256 + 3 * 2 * 256 * 8)


def test_a_checkpointed_layer_keeps_no_weights_but_for_the_window() -> None:
    kept = {
        (linear, window): predict(
            "zero3_forward_window", checkpointing=True, memory_efficient_linear=linear, default_window=window
        )["alive_after_forward_bytes"]
        for linear in (True, False)
        for window in (True, False)
    }
    assert kept[True, False] == kept[False, False] == 2 * 6 * 8 * 256
    assert kept[True, True] == kept[False, True] == kept[True, False] + 2 * 6 * 256 * 256


@pytest.mark.parametrize(
    ("stage", "overlap", "buffers", "resident"),
    [(1, False, 1, 0), (1, True, 2, 0), (2, True, 2, 0), (3, False, 1, 1), (3, True, 1, 1)],
)
def test_reduction_buffers_by_stage(*, stage: int, overlap: bool, buffers: int, resident: int) -> None:
    elements = 4 * 256 * 256
    found = predict("zero_reduce_buffers", zero_stage=stage, overlap_comm=overlap)
    assert found == {"buffer_bytes": 2 * buffers * elements, "resident_buffer_bytes": 2 * resident * elements}


def test_the_tolerance_of_the_offloaded_step_is_below_the_smallest_copy() -> None:
    probe = find_probe("zero12_offload_step")
    parameters = probe.complete({"layers": 1, "hidden_size": 16})
    assert probe.module.tolerance(parameters) < 4 * 16 * 16


@pytest.mark.parametrize("name", PROBES)
def test_facts_are_names_of_the_vocabulary(name: str) -> None:
    probe = find_probe(name)
    for parameters in ({}, *probe.module.SIZES):
        assert set(probe.module.facts(probe.complete(parameters))) <= set(vocabulary())


def measure(overlays: Overlays, name: str, version: str, parameters: dict[str, Any]) -> Measurement:
    found: list[Measurement] = []
    interpreter = overlays.open([f"deepspeed=={version}"])
    run_tasks([make_task(find_probe(name), parameters)], interpreter, keep=lambda _, result: found.append(result))
    assert found[0].succeeded, found[0].reason
    return found[0]


@pytest.mark.versions
@pytest.mark.parametrize(
    ("name", "parameters"), [(name, size) for name in PROBES for size in find_probe(name).module.SIZES]
)
def test_prediction_and_measurement_are_equal(overlays: Overlays, name: str, parameters: dict[str, Any]) -> None:
    measurement = measure(overlays, name, HEALTHY, parameters)
    predicted = find_probe(name).module.predict(measurement.parameters)
    assert {metric: measurement.metric(metric) for metric in predicted} == predicted


@pytest.mark.versions
@pytest.mark.parametrize(("name", "version", "parameters", "verdict"), CHANGES)
def test_known_boundaries_come_out(
    overlays: Overlays, name: str, version: str, parameters: dict[str, Any], verdict: str
) -> None:
    assert find_probe(name).judge(measure(overlays, name, version, parameters))[0] == verdict
