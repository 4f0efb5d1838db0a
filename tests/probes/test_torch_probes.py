"""The probes about torch, and about what accelerate and verl do with it: arithmetic, and what releases show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.lab.probes.allocator_counter import counter_library
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.rules.vocabulary import vocabulary

if TYPE_CHECKING:
    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.environments.overlay import Overlays
    from compatcheck.lab.measurement import Measurement

OF_TORCH = (
    "autocast_cache",
    "checkpoint_early_stop_leak",
    "ddp_buckets",
    "dtensor_spec_leak",
    "entropy",
    "fsdp1_no_sync",
    "fsdp2_gradient_accumulation",
    "log_probabilities",
    "optimizer_step",
    "reduce_scatter_buffers",
    "sdpa_math_cpu",
)
PROBES = (*OF_TORCH, "frozen_upcast", "verl_losses")


def predict(name: str, **parameters: Any) -> dict[str, float]:
    probe = find_probe(name)
    return probe.module.predict(probe.complete(parameters))


@pytest.mark.parametrize(
    ("optimizer", "implementation", "bytes_"),
    [
        ("adamw", "foreach", 4 * 8 * 64 * 64),
        ("adamw", "for_loop", 3 * 4 * 64 * 64),
        ("adamw", "fused", 0),
        ("sgd", "foreach", 4 * 8 * 64 * 64),
        ("sgd", "for_loop", 4 * 64 * 64),
        ("adafactor", "foreach", 4 * (8 * 64 * 64 + 8)),
    ],
)
def test_temporaries_of_an_optimizer_step(optimizer: str, implementation: str, bytes_: int) -> None:
    assert predict("optimizer_step", optimizer=optimizer, implementation=implementation)["temporary_bytes"] == bytes_


def test_rows_save_memory_in_scoring_and_in_backward() -> None:
    whole, rows = (
        predict("log_probabilities", implementation="logsumexp"),
        predict("log_probabilities", implementation="rows"),
    )
    assert (whole["scoring_bytes_per_logit"], rows["scoring_bytes_per_logit"]) == (8, 5)
    assert (whole["backward_bytes_per_logit"], rows["backward_bytes_per_logit"]) == (16, 12)


def test_logsumexp_of_upcast_logits_costs_more_in_backward_than_log_softmax() -> None:
    assert predict("log_probabilities", implementation="log_softmax")["backward_bytes_per_logit"] == 12


def test_entropy_in_chunks_takes_a_share_when_scoring() -> None:
    assert predict("entropy")["bytes_per_logit"] == 12
    assert predict("entropy", chunk=32)["bytes_per_logit"] == 12 / 8


def test_gradients_that_are_not_reduced_do_not_shrink_with_ranks() -> None:
    for ranks in (2, 4):
        assert predict("fsdp2_gradient_accumulation", world_size=ranks)["gradient_bytes"] == 4 * 4 * 64 * 64
        assert predict("fsdp1_no_sync", world_size=ranks)["gradient_bytes"] == 4 * 4 * 64 * 64


def test_bucket_views_save_one_copy_of_the_gradients() -> None:
    both = predict("ddp_buckets", gradient_as_bucket_view=False)["gradient_bytes"]
    assert both == 2 * predict("ddp_buckets")["gradient_bytes"]


@pytest.mark.parametrize("name", PROBES)
def test_facts_are_names_of_the_vocabulary(name: str) -> None:
    probe = find_probe(name)
    for parameters in ({}, *probe.module.SIZES):
        assert set(probe.module.facts(probe.complete(parameters))) <= set(vocabulary())


def measure(interpreter: Interpreter, name: str, parameters: dict[str, Any]) -> Measurement:
    found: list[Measurement] = []
    run_tasks([make_task(find_probe(name), parameters)], interpreter, keep=lambda _, result: found.append(result))
    assert found[0].succeeded, found[0].reason
    return found[0]


@pytest.mark.versions
@pytest.mark.parametrize(
    ("name", "parameters"), [(name, size) for name in OF_TORCH for size in find_probe(name).module.SIZES]
)
def test_prediction_and_measurement_are_equal(overlays: Overlays, name: str, parameters: dict[str, Any]) -> None:
    measurement = measure(overlays.open([]), name, parameters)
    predicted = find_probe(name).module.predict(measurement.parameters)
    assert {metric: measurement.metric(metric) for metric in predicted} == predicted


@pytest.mark.versions
@pytest.mark.skipif(counter_library()[0] is None, reason="the allocator's counter is not there")
def test_gradients_that_meet_are_added_in_place_where_no_mode_watches(overlays: Overlays) -> None:
    probe = find_probe("log_probabilities")
    task = make_task(probe, {"implementation": "rows", "logits_dtype": "float32"})
    found: list[Measurement] = []
    for accounting in ("allocator", "storages"):
        again = replace(task, accounting=accounting)
        run_tasks([again], overlays.open([]), keep=lambda _, result: found.append(result))
    assert [one.metric("backward_bytes_per_logit") for one in found] == [8, 12]
    assert [one.phases[-1].peak_operator is None for one in found] == [True, False]


@pytest.mark.versions
@pytest.mark.parametrize(
    ("version", "frozen", "trainable"),
    [("1.6.0", 2, 1), ("1.12.0", 2, 1), ("1.13.0", 1, 0.5), ("1.14.0", 1, 1), ("1.15.0", 1, 1)],
)
def test_what_accelerate_upcasts_under_fsdp2(overlays: Overlays, version: str, frozen: float, trainable: float) -> None:
    measurement = measure(overlays.open([f"accelerate=={version}"]), "frozen_upcast", {})
    healthy = predict("frozen_upcast")
    assert measurement.metric("frozen_bytes") == frozen * healthy["frozen_bytes"]
    assert measurement.metric("trainable_bytes") == trainable * healthy["trainable_bytes"]
