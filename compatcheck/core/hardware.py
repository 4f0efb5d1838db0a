"""Devices of a node: what was measured, declared or could not be read."""

from collections.abc import Mapping

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source


class Hardware(NamedTuple):
    """The accelerators and the driver of one kind of node; every field may be unknown (None)."""

    source: Source
    gpu: str | None = None
    """Catalogue name: ``H100-80GB``."""
    memory_bytes: int | None = None
    """Memory of one device in bytes."""
    compute_capability: float | None = None
    """9.0 for Hopper."""
    multiprocessors: int | None = None
    """Streaming multiprocessors of one device."""
    gpus_per_node: int | None = None
    nodes: int | None = None
    driver: str | None = None
    """Driver version, ``550.54.15``."""
    host_memory_bytes: int | None = None
    nvlink: bool | None = None
    skipped: tuple[Skipped, ...] = ()
    """What could not be read, in words: never "no GPU" when the tool merely failed."""
    sources: Mapping[str, Source] = {}
    """Where a field comes from that ``source`` did not state, by field: host memory, what the catalogue filled in."""
    catalogued: frozenset[str] = frozenset()
    """Fields the GPU catalogue filled in by the device's name: looked up, not measured. ``nodes`` where nobody
    said how many there are and one is taken."""
