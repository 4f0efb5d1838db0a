"""The probes about trl, peft and accelerate: their arithmetic, and what they find on either side of known boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.lab.environments.overlay import Overlays, build_base
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.rules.vocabulary import vocabulary

if TYPE_CHECKING:
    from compatcheck.lab.measurement import Measurement

ENVIRONMENTS = {
    "accelerate_fp32_outputs": ("accelerate==1.15.0",),
    "peft_adapter_dtype": ("peft==0.21.2", "transformers==4.57.6"),
    "peft_dora": ("peft==0.21.2", "transformers==4.57.6"),
    "peft_lora_forward": ("peft==0.21.2", "transformers==4.57.6"),
    "peft_target_parameters": ("peft==0.21.2", "transformers==4.57.6"),
    "trl_defaults_memory": ("trl==1.16.0", "transformers==5.23.0"),
    "trl_dpo_loss": ("trl==1.16.0", "transformers==5.23.0"),
    "trl_grpo_loss": ("trl==1.16.0", "transformers==5.23.0"),
    "trl_sft_loss": ("trl==1.16.0", "transformers==5.23.0"),
}
"""Probe → releases in which everything is as predicted."""
CHANGES = [
    ("accelerate_fp32_outputs", "accelerate==1.15.0", {}, 6),
    ("accelerate_fp32_outputs", "accelerate==1.15.0", {"of": "kept"}, 4),
    ("peft_adapter_dtype", "peft==0.11.1", {}, 2),
    ("peft_adapter_dtype", "peft==0.12.0", {}, 4),
    ("peft_lora_forward", "peft==0.11.1", {}, 688),
    ("peft_lora_forward", "peft==0.12.0", {}, 4 * (6 * 64 + 96) + 28 * 8),
    ("peft_lora_forward", "peft==0.12.0", {"mixed_precision": "bf16"}, 2 * (6 * 64 + 96) + 14 * 8),
    ("peft_dora", "peft==0.13.2", {}, 4),
    ("peft_dora", "peft==0.13.2", {"mixed_precision": "bf16"}, 2),
    ("peft_dora", "peft==0.14.0", {}, 0),
    ("peft_dora", "peft==0.14.0", {"dropout": 0.1}, 4),
    ("peft_target_parameters", "peft==0.18.1", {}, 2 * 4),
    ("peft_target_parameters", "peft==0.18.1", {"experts": 8}, 2 * 8),
    ("peft_target_parameters", "peft==0.19.0", {}, 2),
    ("trl_sft_loss", "trl==1.5.1", {"dtype": "float32"}, 16),
    ("trl_sft_loss", "trl==1.5.1", {"dtype": "mixed", "adapter": "lora"}, 16),
    ("trl_sft_loss", "trl==1.6.0", {"dtype": "float32"}, 12),
    ("trl_sft_loss", "trl==0.22.2", {"dtype": "float32", "batch": 1, "length": 5120}, 20),
    ("trl_sft_loss", "trl==1.6.0", {}, 12),
    ("trl_sft_loss", "trl==1.7.0", {}, 0),
    ("trl_dpo_loss", "trl==0.28.0", {}, 5),
    ("trl_dpo_loss", "trl==0.29.0", {}, 11),
    ("trl_dpo_loss", "trl==1.6.0", {}, 8),
    ("trl_dpo_loss", "trl==1.6.0", {"trainer": "kto", "dtype": "float32"}, 20.25),
    ("trl_dpo_loss", "trl==1.7.0", {"trainer": "kto", "dtype": "float32"}, 12.25),
    ("trl_dpo_loss", "trl==1.7.0", {"trainer": "orpo", "dtype": "float32"}, 14),
    ("trl_grpo_loss", "trl==0.29.1", {}, 4),
    ("trl_grpo_loss", "trl==0.22.2", {"batch": 1, "completion": 5120}, 10),
    ("trl_grpo_loss", "trl==1.0.0", {}, 8),
    ("trl_grpo_loss", "trl==1.0.0", {"trainer": "rloo"}, 8),
    ("trl_grpo_loss", "trl==0.29.1", {"dtype": "float32"}, 12),
    ("trl_grpo_loss", "trl==1.0.0", {"dtype": "float32"}, 16),
    ("trl_grpo_loss", "trl==1.10.0", {"dtype": "float32"}, 12),
    ("trl_grpo_loss", "trl==1.10.0", {}, 6),
]
"""Probe, release, parameters → the value measured."""
DATES = {
    "0.22.2": "2025-09-05",
    "0.28.0": "2026-02-12",
    "0.29.0": "2026-02-26",
    "0.29.1": "2026-03-22",
    "1.0.0": "2026-04-01",
    "1.5.1": "2026-05-29",
    "1.6.0": "2026-06-13",
    "1.7.0": "2026-06-27",
    "1.10.0": "2026-08-14",
}
"""Release of trl → day whose transformers it is measured with."""


def predict(name: str, **parameters: Any) -> float:
    probe = find_probe(name)
    return probe.module.predict(probe.complete(parameters))[probe.module.METRIC]


def test_adapted_layers_keep_distinct_inputs_once() -> None:
    off = {"autocast_adapter_dtype": "off", "hidden": 10, "intermediate": 30, "rank": 2}
    assert predict("peft_lora_forward", **off) == 2 * (3 * 10 + 30 + 7 * 2)


def test_dropout_gives_each_adapted_layer_an_input_and_a_mask() -> None:
    with_dropout = {"hidden": 10, "intermediate": 30, "rank": 2, "dropout": 0.1}
    assert predict("peft_lora_forward", **with_dropout) == 2 * (2 * (6 * 10 + 30) + 7 * 2)


def test_adapters_have_the_dtype_of_the_model() -> None:
    assert [predict("peft_adapter_dtype", dtype=dtype) for dtype in ("bfloat16", "float32")] == [2, 4]


def test_one_sum_of_experts_is_kept_whatever_their_number() -> None:
    assert predict("peft_target_parameters", experts=4) == predict("peft_target_parameters", experts=64) == 2


def test_a_checkpointed_layer_keeps_its_input() -> None:
    assert predict("trl_defaults_memory", hidden=100) == 200


@pytest.mark.parametrize("name", ["trl_dpo_loss", "trl_grpo_loss", "trl_sft_loss"])
def test_a_chunked_loss_holds_no_logits(name: str) -> None:
    assert predict(name) == 0


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_facts_are_names_of_the_vocabulary(name: str) -> None:
    probe = find_probe(name)
    for size in ({}, *probe.module.SIZES):
        assert set(probe.module.facts(probe.complete(size))) <= set(vocabulary())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_batches_have_more_than_one_sequence(name: str) -> None:
    """A slice of one sequence is contiguous and hides its copy."""
    parameters = find_probe(name).complete({})
    assert parameters.get("batch", parameters.get("pairs", 2)) >= 2


@pytest.fixture(scope="module")
def overlays() -> Overlays:
    return Overlays(build_base("2.13.0+cpu"))


def measure(
    overlays: Overlays, requirements: tuple[str, ...], name: str, sizes: list[dict[str, Any]], date: str | None = None
) -> list[Measurement]:
    kept: list[Measurement] = []
    probe = find_probe(name)
    run_tasks(
        [make_task(probe, size, "cpu") for size in sizes],
        overlays.open(requirements, exclude_newer=date),
        keep=lambda _task, measurement: kept.append(measurement),
    )
    return kept


@pytest.mark.versions
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_prediction_and_measurement_are_equal(overlays: Overlays, name: str) -> None:
    probe = find_probe(name)
    measured = measure(overlays, ENVIRONMENTS[name], name, [dict(size) for size in probe.module.SIZES])
    assert len(measured) == len(probe.module.SIZES)
    for measurement in measured:
        verdict, value, wanted = probe.judge(measurement)
        assert (verdict, value) == ("good", wanted), (measurement.parameters, measurement.reason)


@pytest.mark.versions
@pytest.mark.parametrize(("name", "release", "parameters", "value"), CHANGES)
def test_known_boundaries_come_out(
    overlays: Overlays, name: str, release: str, parameters: dict[str, Any], value: float
) -> None:
    beside = ("transformers==4.57.6",) if release.startswith("peft") else ()
    date = DATES[release.partition("==")[2]] if release.startswith("trl") else None
    (measurement,) = measure(overlays, (release, *beside), name, [parameters], date)
    assert measurement.metric(find_probe(name).module.METRIC) == value, measurement.reason
