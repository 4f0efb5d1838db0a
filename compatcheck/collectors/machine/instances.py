"""The catalogue of cloud instances: what is in a `p4de.24xlarge`, and which instances are the smallest."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.machine.catalogue import Catalogue, Gpu, UnknownDeviceError, build_catalogue, parse_gpu
from compatcheck.core.hardware import Hardware
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.rules.locate import open_builtin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIXES = r"standard_|ml\."
_SUGGESTED = 3
"""What Azure's tools and SageMaker put in front of a type's name."""


class Instance(NamedTuple):
    """One type of instance of one cloud."""

    name: str
    """As its provider writes it: ``p4de.24xlarge``, ``Standard_ND96asr_v4``."""
    cloud: str
    gpu: Gpu
    gpus: int
    """Devices in one instance."""
    host_memory_bytes: int | None
    """Main memory of one instance; None where it was not read."""
    nvlink: bool | None
    """Whether its devices are joined by NVLink; None when that is not known."""

    @property
    def device_memory_bytes(self) -> int:
        """Memory of all its devices together."""
        return self.gpus * self.gpu.memory_bytes


def build_instances(rows: Mapping[str, Mapping[str, Any]], catalogue: Catalogue) -> dict[str, Instance]:
    """Build the catalogue from its rows, as ``rules/_instances.yaml`` or the compiled database has them."""
    instances = {}
    for name, row in rows.items():
        gpu, gpus, host = catalogue[row["gpu"]], row["gpus"], row.get("host_gib")
        joined = row.get("nvlink", gpu.nvlink) if gpus > 1 else False
        instances[name] = Instance(name, row["cloud"], gpu, gpus, None if host is None else host * GIB, joined)
    return instances


@lru_cache(maxsize=1)
def load_instances() -> Mapping[str, Instance]:
    """Load the catalogue that comes with the package's rule database."""
    database = open_builtin()
    return build_instances(database.section("instances") or {}, build_catalogue(database.section("gpus") or {}))


def parse_hardware(text: str, *, source: Source | None = None) -> Hardware:
    """Read declared hardware: devices (``8xH100-80GB``) or instances (``p4de.24xlarge``; ``2xp4d.24xlarge`` is two nodes).

    Raises:
        UnknownDeviceError: neither a device nor an instance has this name.
        UsageError: it names devices of several sizes, or none.
    """
    source = source or Source("--gpu")
    try:
        return parse_gpu(text, source=source)
    except UnknownDeviceError as error:
        instance = find_instance(error.name)
        if instance is None:
            near = dict.fromkeys((*suggest_instances(error.name), *error.near))
            raise UnknownDeviceError(error.name, tuple(near)[:3], source) from None
        before = text.strip().removesuffix(error.name).rstrip(" x×*\t")
        return Hardware(
            source if source.key is not None else source._replace(key=instance.name),
            instance.gpu.name,
            instance.gpu.memory_bytes,
            instance.gpu.compute_capability,
            instance.gpu.multiprocessors,
            instance.gpus,
            int(before) if before else None,
            host_memory_bytes=instance.host_memory_bytes,
            nvlink=instance.nvlink,
        )


def find_instance(name: str) -> Instance | None:
    """Return the instance of this name, or None; case, ``Standard_`` and ``ml.`` do not matter."""
    key = _key(name)
    return next((instance for instance in load_instances().values() if _key(instance.name) == key), None)


def suggest_instances(name: str) -> list[str]:
    """Return the names most like ``name``, the nearest first; a family such as ``p4de`` gives its types."""
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    key = _key(name)
    by_key = {_key(instance.name): instance.name for instance in load_instances().values()}
    family = [full for short, full in by_key.items() if len(key) > 1 and re.match(rf"{re.escape(key)}[._-]", short)]
    close = [by_key[short] for short in get_close_matches(key, by_key, n=_SUGGESTED, cutoff=0.75)]
    return list(dict.fromkeys([*family, *close]))[:_SUGGESTED]


def instances_by_memory(instances: Iterable[Instance] | None = None) -> tuple[Instance, ...]:
    """Return the instances from the smallest to the largest, for the first one on which a run fits.

    Smaller is less memory of all devices together, then fewer devices (each of them larger), then less main memory, unknown
    last. What an instance costs takes no part in it.
    """
    known = load_instances().values() if instances is None else instances
    return tuple(
        sorted(
            known,
            key=lambda instance: (
                instance.device_memory_bytes,
                instance.gpus,
                instance.host_memory_bytes is None,
                instance.host_memory_bytes or 0,
                instance.name,
            ),
        )
    )


def instances_with(gpu: str, gpus: int, instances: Iterable[Instance]) -> tuple[tuple[int, Instance], ...]:
    """Return which instances hold this many devices of a kind, each with how many of it that takes.

    Only those with the fewest devices to spare on the fewest nodes, less main memory first, unknown last; empty when nobody
    rents out the device.
    """
    fitting = [(-(-gpus // instance.gpus), instance) for instance in instances if instance.gpu.name == gpu]
    spare = min((nodes * instance.gpus for nodes, instance in fitting), default=0)
    fitting = [(nodes, instance) for nodes, instance in fitting if nodes * instance.gpus == spare]
    fewest = min((nodes for nodes, _ in fitting), default=0)
    known = instances_by_memory(instance for nodes, instance in fitting if nodes == fewest)
    return tuple((fewest, instance) for instance in known)


def _key(name: str) -> str:
    return re.sub(rf"^(?:{_PREFIXES})", "", name.strip().lower())
