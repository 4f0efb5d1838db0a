"""The catalogue of devices, and the hardware a person declares by name: ``8xH100-80GB``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from compatcheck.core.errors import UsageError
from compatcheck.core.hardware import Hardware
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.units import GIB, MIB
from compatcheck.rules.locate import open_builtin

_VENDORS = ("nvidia", "geforce", "tesla", "quadro", "amd", "instinct")
_DECLARED = r"(?:(\d{1,9})\s*[x×*]\s*)?(\S.*)"
_LONGEST_NAME = 200
_SIZE = r"(\d{1,9})\s*gi?b"
_TOLERANCE = 0.12
"""How far reported memory may be from the catalogue's: ECC takes a sixteenth, torch's own total is a little smaller."""
_CUT_TOLERANCE = 0.01
"""The same for a name that was cut off: memory has to tell the devices apart whose names begin alike."""
_SHORTEST_BEGINNING = 3
_SUGGESTED = 3


class UnknownDeviceError(UsageError):
    """No device of the catalogue has this name."""

    def __init__(self, name: str, near: Iterable[str], source: Source) -> None:
        """Name what was asked for, and what it may have been meant to be."""
        known = "`compatcheck facts --names` lists devices and machines, under hardware.gpu"
        near = tuple(near)
        hint = "did you mean " + ", ".join(near) + "?" if near else known
        super().__init__(f"unknown device {name!r}", source=source, hint=hint)
        self.name = name
        self.near = near


class Gpu(NamedTuple):
    """One device of the catalogue."""

    name: str
    memory_bytes: int
    """Memory a job can have at most: what the driver reports where that is known, else the marketed size."""
    marketed_gib: int
    compute_capability: float | None
    """None for devices that are not NVIDIA's."""
    multiprocessors: int | None
    """Streaming multiprocessors, or compute units of AMD."""
    architecture: str
    nvlink: bool | None
    """True when every board of this name has NVLink; None when it depends on the machine."""
    aliases: tuple[str, ...]


Catalogue = Mapping[str, Gpu]


def build_catalogue(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Gpu]:
    """Build the catalogue from its rows, as ``rules/_gpus.yaml`` or the compiled database has them."""
    return {
        name: Gpu(
            name,
            row["mib"] * MIB if row.get("mib") else row["gib"] * GIB,
            row["gib"],
            row["cc"],
            row["sms"],
            row["architecture"],
            row.get("nvlink"),
            tuple(row["aliases"]),
        )
        for name, row in rows.items()
    }


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Load the catalogue that comes with the package's rule database."""
    return build_catalogue(open_builtin().section("gpus") or {})


def parse_gpu(text: str, *, source: Source | None = None) -> Hardware:
    """Read a declared device: ``H100-80GB``, ``8xH100-80GB``, ``4 x NVIDIA A100-SXM4-40GB``.

    Raises:
        UnknownDeviceError: the name is unknown.
        UsageError: it names devices of several sizes, or none.
    """
    source = source or Source("--gpu")
    catalogue = load_catalogue()
    match = re.fullmatch(_DECLARED, text.strip())
    if match is None:
        raise UsageError("no device is named", source=source, hint="for example 8xH100-80GB")
    count = int(match[1]) if match[1] else None
    if count == 0:
        raise UsageError(f"{text!r} declares no device", source=source, hint=f"for example 8x{match[2]}")
    found = find_gpus(match[2], catalogue)
    if len(found) == 1:
        declared = declare(found[0], source, gpus_per_node=count)
        others = find_other_sizes(match[2], found[0], catalogue)
        if not others:
            return declared
        taken = f"{match[2]} is taken for {found[0].name}; there {'are' if len(others) > 1 else 'is'} also {', '.join(others)}"
        key = taken if source.key is None else f"{source.key}: {taken}"
        return declared._replace(sources={"memory_bytes": source._replace(key=key)})
    if found:
        names = " or ".join(gpu.name for gpu in found)
        raise UsageError(f"{match[2]} comes in several sizes", source=source, hint=f"say {names}")
    raise UnknownDeviceError(match[2], suggest(match[2], catalogue), source)


def declare(gpu: Gpu, source: Source, *, gpus_per_node: int | None = None) -> Hardware:
    """Return the hardware of a node with this device."""
    return Hardware(
        source,
        gpu.name,
        gpu.memory_bytes,
        gpu.compute_capability,
        gpu.multiprocessors,
        gpus_per_node,
        nvlink=gpu.nvlink,
    )


def fill_in(hardware: Hardware, gpu: Gpu) -> Hardware:
    """Take from the catalogue what a device did not say itself, and say so."""
    looked_up = {
        field: getattr(gpu, field)
        for field in ("memory_bytes", "compute_capability", "multiprocessors", "nvlink")
        if getattr(hardware, field) is None and getattr(gpu, field) is not None
    }
    sources = {**hardware.sources, **dict.fromkeys(looked_up, Source(f"GPU catalogue ({gpu.name})"))}
    return hardware._replace(**looked_up, sources=sources, catalogued=frozenset(looked_up))


def find_gpus(name: str, catalogue: Catalogue, memory_bytes: int | None = None) -> list[Gpu]:
    """Find the devices a name can mean.

    Args:
        name: catalogue name or a name as a driver prints it.
        catalogue: devices to choose from.
        memory_bytes: reported memory, which tells the sizes of one name apart. A device of another size than all of these
            is not in the catalogue, whatever its name: an H100 of 94 GB calls itself "NVIDIA H100".
    """
    if len(name) > _LONGEST_NAME:
        return []
    key = _key(name)
    exact = [gpu for gpu in catalogue.values() if _key(gpu.name) == key]
    found = exact or [gpu for gpu in catalogue.values() if any(_key(alias) == key for alias in gpu.aliases)]
    sized = re.fullmatch(rf"(.+?)[-_ ]*{_SIZE}", name.strip().lower())
    if not found and sized is not None:  # RTX3090-24GB: a size that the name does without
        found = [gpu for gpu in find_gpus(sized[1], catalogue) if gpu.marketed_gib == int(sized[2])]
    if found and memory_bytes is not None:
        nearest = min(found, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes))
        found = [nearest] if abs(nearest.memory_bytes - memory_bytes) <= _TOLERANCE * nearest.memory_bytes else []
    return found


def find_other_sizes(name: str, gpu: Gpu, catalogue: Catalogue) -> list[str]:
    """Return the devices of other memory that a name means as well as the one it is taken for: ``H100`` has no size in it."""
    words = _words(name)
    if _key(gpu.name) == _key(name):
        return []
    return [
        other.name
        for other in catalogue.values()
        if other.marketed_gib != gpu.marketed_gib and _words(other.name)[: len(words)] == words
    ]


def find_cut_name(name: str, catalogue: Catalogue, memory_bytes: int | None = None) -> list[Gpu]:
    """Find the devices whose name begins so, as `find_gpus`: ``nvidia-smi`` cuts long names off, ``NVIDIA A100-SXM...``.

    Without memory nothing is found: too many names begin alike.
    """
    key = _key(name)
    if memory_bytes is None or len(key) < _SHORTEST_BEGINNING:
        return []
    return [
        gpu
        for gpu in catalogue.values()
        if any(_key(known).startswith(key) for known in (gpu.name, *gpu.aliases))
        and abs(gpu.memory_bytes - memory_bytes) <= _CUT_TOLERANCE * gpu.memory_bytes
    ]


def suggest(name: str, catalogue: Catalogue) -> list[str]:
    """Return the names of the catalogue most like ``name``, the nearest first."""
    from difflib import SequenceMatcher  # noqa: PLC0415 (only on the way to an error)

    key = _key(name[:_LONGEST_NAME])
    digits = "".join(re.findall(r"\d+", re.sub(_SIZE, "", name[:_LONGEST_NAME].lower())))
    scored: list[tuple[float, str]] = []
    for gpu in catalogue.values():
        keys: Iterable[str] = (_key(gpu.name), *(_key(alias) for alias in gpu.aliases))
        score = max(SequenceMatcher(None, key, other).ratio() for other in keys)
        # The number is what people remember: H100-60GB is nearer to an H100 than to another device of 60 GB.
        if digits and digits == "".join(re.findall(r"\d+", re.sub(_SIZE, "", gpu.name.lower()))):
            score += 0.25
        scored.append((-score, gpu.name))
    return [name for score, name in sorted(scored)[:_SUGGESTED] if score <= -0.6]  # noqa: PLR2004 (a close match)


@lru_cache(maxsize=512)  # every name of the catalogue, for each variant of a run
def _key(name: str) -> str:
    """Reduce a name to letters and digits without the vendor."""
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]+|\d+", name.lower()) if word not in _VENDORS]
