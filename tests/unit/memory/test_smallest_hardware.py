"""The smallest hardware a run fits on, by device and by cloud instance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.machine.instances import parse_hardware
from compatcheck.core.estimate import Component, Estimate, Phase, Verdict, exactly
from compatcheck.core.facts import Fact, Facts, Value
from compatcheck.core.units import GIB
from compatcheck.memory.smallest_hardware import name_instance, place
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Mapping


def price(devices: Mapping[str, Value]) -> Estimate:
    """Price a toy run: 630 GiB over the ranks."""
    ranks, limit = (devices[f"hardware.{name}"] for name in ("world_size", "memory_bytes"))
    assert isinstance(ranks, int)
    assert isinstance(limit, int)
    size = 630 * GIB // ranks
    part = Component("state", "parameters", exactly(size), "", "")
    outcome = "fits" if size <= limit else "does_not_fit"
    return Estimate("closed_form", (Phase("step", "train", (part,)),), Verdict(outcome, limit, limit - size))


def test_the_smallest_hardware_names_instances_that_hold_it() -> None:
    run = Facts({"training.sharding": Fact("training.sharding", "zero", "set")})
    placements, _ = place({"train": run}, price, open_rules())
    sizes = [placement.gpus * placement.limit_bytes for placement in placements]
    assert sizes == sorted(sizes)
    assert min(sizes) >= 630 * GIB
    named = [placement for placement in placements if placement.instance is not None]
    assert named
    for placement in named:
        hardware = parse_hardware(str(placement.instance))
        assert hardware.gpu == placement.gpu
        assert (hardware.nodes or 1) * (hardware.gpus_per_node or 0) >= placement.gpus


@pytest.mark.parametrize(
    ("stated", "nvidia"),
    [
        ({"hardware.gpu": "A800-80GB"}, True),
        ({"hardware.gpu": "MI300X"}, False),
        ({"runtime.torch_build": "rocm"}, False),
        ({"runtime.torch_build": "cuda"}, True),
        ({"hardware.gpu": "H100-80GB", "runtime.torch_build": "rocm"}, True),
        ({}, True),
    ],
)
def test_devices_are_of_the_maker_that_the_run_is_built_for(stated: dict[str, Value], nvidia: bool) -> None:  # noqa: FBT001 (a value)
    values: dict[str, Value] = {"training.sharding": "zero", **stated}
    placements, _ = place(
        {"train": Facts({name: Fact(name, value, "set") for name, value in values.items()})}, price, open_rules()
    )
    rows = open_rules().section("gpus")
    assert placements
    assert {rows[placement.gpu].get("cc") is not None for placement in placements} == {nvidia}


def test_a_device_on_which_the_stack_does_not_start_is_none() -> None:
    run = Facts({"training.sharding": Fact("training.sharding", "zero", "set")})
    (first, *_), _ = place({"train": run}, price, open_rules())

    def refusing(devices: Mapping[str, Value]) -> Estimate | None:
        return None if devices["hardware.gpu"] == first.gpu else price(devices)

    found, _ = place({"train": run}, refusing, open_rules())
    assert found
    assert first.gpu not in {placement.gpu for placement in found}


def test_an_engine_that_splits_its_model_starts_on_no_fewer_devices() -> None:
    facts = {"training.sharding": "fsdp", "rollout.tensor_parallel": 8}
    run = Facts({name: Fact(name, value, "set") for name, value in facts.items()})
    placements, _ = place({"train": run}, price, open_rules())
    assert placements
    assert all(placement.gpus % 8 == 0 for placement in placements)


@pytest.mark.parametrize(
    ("gpu", "gpus", "name"),
    [("A100-80GB", 8, "p4de.24xlarge"), ("A100-80GB", 32, "4xp4de.24xlarge"), ("RTX-3060", 1, None)],
)
def test_an_instance_is_named_as_the_option_takes_it(gpu: str, gpus: int, name: str | None) -> None:
    assert name_instance(gpu, gpus, open_rules()) == name


def test_where_there_is_no_hardware_it_is_said_why() -> None:
    run = Facts({"training.sharding": Fact("training.sharding", "zero", "set")})
    placements, why = place({"train": run}, lambda _: None, open_rules())
    assert placements == ()
    assert re.fullmatch(r"on \d+ this stack does not run", why)
    alone = Facts({"training.sharding": Fact("training.sharding", "ddp", "set")})
    _, why = place({"train": alone}, price, open_rules())
    assert "do not surely hold it, and without sharding more of them change nothing" in why


def test_other_hardware_keeps_the_global_batch_or_says_that_it_does_not() -> None:
    facts = {
        "training.sharding": "zero",
        "hardware.world_size": 12,
        "training.micro_batch_size": 1,
        "training.gradient_accumulation_steps": 2,
    }
    run = Facts({name: Fact(name, value, "set") for name, value in facts.items()})
    placements, _ = place({"train": run}, price, open_rules())
    assert {(one.gpus, one.gradient_accumulation_steps) for one in placements} <= {(4, 6), (8, 3), (16, 0)}
    assert len(placements) > 1
