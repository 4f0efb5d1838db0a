"""Where the nodes of one job differ, and which of it matters: by the index of rules and ``rules/_tables/nodes-of-a-job.yaml``."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatcheck.core.fleet import Skew
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.environment import Package
    from compatcheck.core.node import Node
    from compatcheck.rules.database import RuleSet

ABSENT, UNSET, NO_FILE = "absent", "not set", "no such file"
_TOLERANCE = 0.02
"""Sizes of memory that differ by less are one: what a kernel keeps for itself is never the same twice."""

_SIZES = frozenset({"device", "device memory", "host memory"})
_PYTHON = ("component", "python")

Trait = tuple[str, str]
"""Kind and name of what a node has a value of, see `Skew`."""


class Traits(NamedTuple):
    """What is compared of one node."""

    values: Mapping[Trait, str | int]
    """Sizes in bytes as numbers."""
    closed: frozenset[str]
    """Kinds of which a name that is not listed has the value `ABSENT` or `UNSET`; of others it is unknown."""


class Weights:
    """Which differences matter, and why."""

    def __init__(self, rules: RuleSet) -> None:
        """Read the table and the index of rules."""
        table = rules.section("tables/nodes-of-a-job") or {}
        self._alike: Mapping[str, str] = table.get("alike", {})
        self._own: tuple[str, ...] = tuple(table.get("own", ()))
        self._packages = rules.packages

    def why(self, trait: Trait) -> str | None:
        """Say why nodes should have it alike; None where that does not matter."""
        kind, name = trait
        if kind == "package":
            return self._alike.get(name) or ("rules are about it" if name in self._packages else None)
        if kind == "variable":
            own = any(fnmatchcase(name, pattern) for pattern in self._own)
            return None if own else "it changes what each rank does"
        return None if kind == "tool" else _REASONS[kind]


_REASONS = {
    "component": "ranks run one stack",
    "hardware": "the smallest device and the slowest rank decide",
    "files": "ranks run one program",
    "configuration": "ranks run one configuration",
}


def read_traits(node: Node) -> Traits:
    """List what is compared of a node."""
    environment = node.environment
    values: dict[Trait, str | int] = {("tool", "compatcheck"): node.tool}
    closed = {"variable"} if environment.variables is not None else set[str]()
    if environment.complete:
        closed |= {"package", "component"}
    if environment.python is not None:
        values["component", "python"] = environment.python
    for name, package in environment.components.items():
        if name != "driver":
            values["component", name] = _release(package)
    shipped = {(package.source.path, package.version) for package in environment.components.values()}
    for name, package in environment.packages.items():
        if (package.source.path, package.version) not in shipped:  # nvidia-nccl-cu12 is NCCL and nothing else
            values["package", name] = _release(package)
    for name, (value, _) in environment.facts.items():
        if name.startswith("runtime."):
            values["component", name.removeprefix("runtime.")] = str(value)
    for name, value in (environment.variables or {}).items():
        values["variable", name] = value
    for name, tree in node.editable.items():
        values["files", name] = _tell_tree(tree)
    for path, digest in node.configuration.items():
        values["configuration", path] = NO_FILE if digest is None else f"sha256:{digest}"
    return Traits({**values, **dict(_devices(node))}, frozenset(closed))


def _release(package: Package) -> str:
    built_from = package.details.get("commit") or package.details.get("direct_url")
    return (package.version or "unreadable") + (f" from {built_from}" if built_from else "")


def _tell_tree(tree: Mapping[str, str]) -> str:
    """Name the state of a source tree by a digest of its files' digests."""
    from hashlib import sha256  # noqa: PLC0415 (only with editable installations)

    whole = "\n".join(f"{path} {digest}" for path, digest in sorted(tree.items()))
    return f"sha256:{sha256(whole.encode()).hexdigest()[:12]}"


def _devices(node: Node) -> Iterator[tuple[Trait, str | int]]:
    """Yield devices, driver and memory; of a node that offers no device, as the head of a cluster, only what it has."""
    hardware = node.environment.hardware
    driver = node.environment.components.get("driver")
    if hardware is None:
        return
    if hardware.host_memory_bytes is not None:
        yield ("hardware", "host memory"), hardware.host_memory_bytes
    if node.devices_offered == 0 and hardware.gpu is None:
        return
    stated = hardware.driver or (driver and driver.version)
    yield ("hardware", "driver"), stated or ABSENT
    yield ("hardware", "device"), hardware.gpu or ABSENT
    yield ("hardware", "devices"), str(hardware.gpus_per_node or 0)
    if hardware.memory_bytes is not None:
        yield ("hardware", "device memory"), hardware.memory_bytes


def find_skews(nodes: Sequence[Node], rules: RuleSet) -> tuple[Skew, ...]:
    """Compare nodes; what matters comes first, then by kind and name.

    Patch releases of Python run the same bytecode and read each other's pickles; Ray alone refuses workers of another one
    (python/ray/_private/utils.py check_version_info, ``python_version_match_level="patch"``).
    """
    weights, with_ray = Weights(rules), any("ray" in node.environment.packages for node in nodes)
    traits = [read_traits(node) for node in nodes]
    every = dict.fromkeys(trait for one in traits for trait in one.values)
    skews = []
    for trait in every:
        held = list(_values_of(trait, nodes, traits))
        if len({value for _, value in held}) < 2:
            continue
        groups: dict[str, list[str]] = {}
        for name, value in held:
            groups.setdefault(value, []).append(name)
        values = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        alike = trait == _PYTHON and not with_ray and len({value.rpartition(".")[0] for value in groups}) == 1
        why = None if alike else weights.why(trait)
        skews.append(Skew(*trait, tuple((value, tuple(names)) for value, names in values), why))
    return tuple(sorted(skews, key=lambda skew: (skew.why is None, _KINDS.index(skew.kind), skew.name)))


_KINDS = ("component", "hardware", "package", "files", "configuration", "variable", "tool")


def is_of_sizes(skew: Skew) -> bool:
    """Tell whether ranks may differ so: in the kind of device and the size of memory, not in whether there is a device."""
    return skew.kind == "hardware" and skew.name in _SIZES and all(value != ABSENT for value, _ in skew.values)


def _values_of(trait: Trait, nodes: Sequence[Node], traits: Sequence[Traits]) -> Iterator[tuple[str, str]]:
    """Yield the nodes of which a value is known, each with it in words."""
    kind, _ = trait
    missing = UNSET if kind == "variable" else ABSENT
    sizes = Counter(value for one in traits if isinstance(value := one.values.get(trait), int))
    usual = sizes.most_common(1)[0][0] if sizes else 0
    for node, one in zip(nodes, traits, strict=True):
        value = one.values.get(trait)
        if value is None and kind in one.closed:
            value = missing
        if isinstance(value, int):
            value = format_bytes(usual if abs(value - usual) <= _TOLERANCE * usual else value)
        if value is not None:
            yield node.name, value


def differing_files(nodes: Sequence[Node], package: str) -> tuple[str, ...]:
    """Return the files of an editable installation that are not alike on all nodes that have it."""
    trees = [node.editable[package] for node in nodes if package in node.editable]
    paths = sorted({path for tree in trees for path in tree})
    return tuple(path for path in paths if len({tree.get(path) for tree in trees}) > 1)


def natural(name: str) -> tuple[object, ...]:
    """Return what names of nodes are sorted by: node9 before node10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((len(digits := part.lstrip("0")), digits, part) if at % 2 else part for at, part in enumerate(parts))
