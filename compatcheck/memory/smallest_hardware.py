"""The smallest hardware a run would fit on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from compatcheck.core.suggestions import Placement
from compatcheck.core.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Facts, Value
    from compatcheck.rules.database import RuleSet

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PER_NODE = 8
_MOST = 4
_SHARDED = frozenset({"zero", "fsdp", "megatron"})


def place(
    roles: Mapping[str, Facts], price: Callable[[Mapping[str, Value]], Estimate | None], rules: RuleSet
) -> tuple[tuple[Placement, ...], str]:
    """Find, for each kind of device, the fewest that hold the run, and return the ones with the least memory in all.

    Without sharding more devices change nothing, and one is tried. A run fits when even the high bound does. Only devices of
    the maker that the run's own device, or its build of torch, is of are looked at; NVIDIA's where nothing tells.

    Args:
        roles: the facts of the run.
        price: estimates it on devices with these facts, with what is known to go wrong; None where the stack does not run there.
        rules: the devices.

    Returns:
        The hardware; in words why there is none, empty where there is some.
    """
    first = next(iter(roles.values()))
    sharding = first.get("training.sharding")
    counts = _COUNTS if sharding is not None and sharding.value in _SHARDED else (1,)
    engine = _ranks_of_engine(roles) if len(counts) > 1 else 1
    devices = first.get("hardware.devices_per_rank")
    each = devices.value if devices is not None and isinstance(devices.value, int) else 1
    found: list[Placement] = []
    refused = short = 0
    nvidia = _is_nvidia(first, rules)
    for name, row in rules.section("gpus").items():
        if (row.get("cc") is not None) is not nvidia:
            continue
        memory = row["mib"] * MIB if row.get("mib") else row["gib"] * GIB
        device: dict[str, Value] = {"hardware.gpu": name, "hardware.memory_bytes": memory}
        if row.get("cc") is not None:
            device["hardware.compute_capability"] = float(row["cc"])

        def price_on(count: int, device: Mapping[str, Value] = device) -> Estimate | None:
            return price({**device, **_count(first, count)})

        most = sorted(one.gpus * one.limit_bytes for one in found)[:_MOST][_MOST - 1 :]
        tried = [one for one in counts if one % engine == 0 and all(one * memory <= total for total in most)]
        fitting = _find_fewest(tried, price_on)
        if isinstance(fitting, tuple):
            count, estimate = fitting
            found.append(Placement(None, name, count * each, estimate.needed, memory, _keep_batch(first, count)))
        refused += fitting is None
        short += fitting is False
    found.sort(key=lambda one: (one.gpus * one.limit_bytes, one.gpus))
    named = tuple(one._replace(instance=name_instance(one.gpu, one.gpus, rules)) for one in found[:_MOST])
    whys = (
        f"{short} of the known devices do not surely hold it, "
        + (f"even {counts[-1]} of them" if len(counts) > 1 else "and without sharding more of them change nothing"),
        f"on {refused} this stack does not run",
    )
    return named, "" if named else "; ".join(why for why, count in zip(whys, (short, refused), strict=True) if count)


def _find_fewest(
    counts: Sequence[int], price: Callable[[int], Estimate | None]
) -> tuple[int, Estimate] | Literal[False] | None:
    """Find the fewest devices that hold a run, of those that its ranks can be arranged on: more of them never need more.

    Returns:
        The number, and the estimate; False where none holds it, None where the stack does not run on them.
    """
    fitting: tuple[int, Estimate] | Literal[False] = False
    low, high = 0, len(counts) - 1
    middle = high
    while low <= high:
        estimate = price(counts[middle])
        if estimate is None:
            return None
        if estimate.verdict.outcome == "fits":
            fitting, high = (counts[middle], estimate), middle - 1
        elif fitting or estimate.phases:
            low = middle + 1
        else:
            high = middle - 1  # too many to be arranged, or too few
        middle = (low + high) // 2 if fitting else high
    return fitting


def _count(facts: Facts, count: int) -> dict[str, Value]:
    """Return what a number of devices says: ranks, nodes, and the accumulation that keeps the global batch."""
    steps = _keep_batch(facts, count)
    return {
        "hardware.world_size": count,
        "hardware.nodes": max(1, count // _PER_NODE),
        "hardware.gpus_per_node": min(count, _PER_NODE),
        **({"training.gradient_accumulation_steps": steps} if steps else {}),
    }


def _keep_batch(facts: Facts, ranks: int) -> int | None:
    """Return the accumulation that keeps the global batch on another number of ranks; 0 where none does, None where it stays."""
    stated = (facts.get(name) for name in ("hardware.world_size", "training.gradient_accumulation_steps"))
    world, steps = (None if fact is None else fact.value for fact in stated)
    if not isinstance(world, int) or not isinstance(steps, int) or world == ranks or "rollout.engine" in facts:
        return None
    return world * steps // ranks if world * steps % ranks == 0 else 0


def _is_nvidia(facts: Facts, rules: RuleSet) -> bool:
    gpu, build = facts.get("hardware.gpu"), facts.get("runtime.torch_build")
    row = rules.section("gpus").get(str(gpu.value)) if gpu is not None else None
    if row is not None:
        return row.get("cc") is not None
    return build is None or build.value != "rocm"


def _ranks_of_engine(roles: Mapping[str, Facts]) -> int:
    """Return over how many devices the rollout engine splits its model: it starts on no fewer."""
    stated = (facts["rollout.tensor_parallel"].value for facts in roles.values() if "rollout.tensor_parallel" in facts)
    return next((value for value in stated if isinstance(value, int) and value > 0), 1)


def name_instance(gpu: str, gpus: int, rules: RuleSet) -> str | None:
    """Name the smallest cloud instances with these devices, as ``--gpu`` takes them: ``2xp4d.24xlarge``."""
    from compatcheck.collectors.machine.catalogue import build_catalogue  # noqa: PLC0415 (only with suggestions)
    from compatcheck.collectors.machine.instances import build_instances, instances_with  # noqa: PLC0415 (only with suggestions)

    known = build_instances(rules.section("instances") or {}, build_catalogue(rules.section("gpus") or {}))
    fitting = instances_with(gpu, gpus, known.values())
    if not fitting:
        return None
    nodes, instance = fitting[0]
    return instance.name if nodes == 1 else f"{nodes}x{instance.name}"
