"""The devices of an environment from all that its reports list: one kind of node, as `compatcheck.core.hardware` has it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.machine.catalogue import Gpu, fill_in, find_cut_name, find_gpus, load_catalogue
from compatcheck.core.errors import CompatcheckError
from compatcheck.core.hardware import Hardware
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.collectors.reports.report import Device, PastedReport

_TOLERANCE = 0.12
"""As in `compatcheck.collectors.machine.catalogue`: ECC takes a sixteenth, torch's own total is a little smaller."""
_HINT = "declare the devices: --gpu 8xH100-80GB"


def list_differs(first: PastedReport, second: PastedReport) -> bool:
    """Tell whether the devices of two reports cannot be those of one node."""
    if not first.devices or not second.devices:
        return False
    ours, theirs = first.devices, second.devices
    if first.others or second.others or not (first.whole and second.whole):
        fewer, more = (ours, theirs) if len(ours) <= len(theirs) else (theirs, ours)
        longer = first if more is ours else second
        if longer.whole or first.others or second.others:
            return not all(any(_can_be_same(one, other) for other in more) for one in fewer)
        return not any(_can_be_same(one, other) for one in fewer for other in more)
    return len(ours) != len(theirs) or not all(
        _can_be_same(one, other) for one, other in zip(_sort(ours), _sort(theirs), strict=True)
    )


def _sort(devices: Sequence[Device]) -> list[Device]:
    return sorted(devices, key=lambda device: (device.mig, _key(device)))


def _key(device: Device) -> str:
    name = device.name.lower().replace("nvidia ", "").replace("tesla ", "").replace("geforce ", "")
    return name.partition(" mig")[0]


def _can_be_same(one: Device, other: Device) -> bool:
    ours, theirs = _key(one), _key(other)
    if one.cut or other.cut:
        same = ours.startswith(theirs[: len(ours)]) if len(ours) <= len(theirs) else ours.startswith(theirs)
    else:
        same = ours == theirs
    if same and one.memory_bytes is not None and other.memory_bytes is not None:
        return abs(one.memory_bytes - other.memory_bytes) <= _TOLERANCE * max(one.memory_bytes, other.memory_bytes)
    return same


def describe_devices(
    group: Sequence[PastedReport], driver: tuple[Any, Source] | None, host: tuple[Any, Source] | None
) -> Hardware | None:
    """Describe the node that the reports of one environment are of; None when they say nothing of it."""
    listing = max(
        (report for report in group if report.devices),
        key=lambda report: (any(device.mig for device in report.devices), report.whole, _exactness(report)),
        default=None,
    )
    sources: dict[str, Source] = {}
    if driver is not None:
        sources["driver"] = driver[1]
    if host is not None:
        sources["host_memory_bytes"] = host[1]
    base = Hardware(
        group[0].source,
        driver=None if driver is None else str(driver[0]),
        host_memory_bytes=None if host is None else int(host[0]),
        sources=sources,
    )
    if listing is None:
        return base if driver is not None or host is not None else None
    return _summarise(listing, base)


def _exactness(report: PastedReport) -> tuple[int, int]:
    return sum(device.memory_bytes is not None for device in report.devices), -sum(
        device.cut for device in report.devices
    )


def _summarise(listing: PastedReport, base: Hardware) -> Hardware:
    """Describe a node by the device with the least memory, which is where a job runs out first."""
    source = listing.devices_source or listing.source
    devices = listing.devices
    skipped: list[Skipped] = []
    count = len(devices) if listing.whole else None
    if any(device.split for device in devices):
        reason = "MIG is on and its instances are not listed: what a job can use is not known"
        return base._replace(source=source, skipped=(Skipped(source, reason, _HINT, fact="hardware.memory_bytes"),))
    if count is None:
        reason = (
            "names one device; how many a node has is not said"
            if listing.others
            else "the list of devices was not seen to end: how many there are is not known"
        )
        skipped.append(Skipped(source, reason, _HINT, fact="hardware.gpus_per_node"))
    resolved = [(device, *_look_up(device)) for device in devices]
    kinds = Counter(gpu.name if gpu is not None else device.name for device, gpu, _ in resolved)
    unknown = [device.name for device, _, memory in resolved if memory is None]
    if len(kinds) > 1 and unknown:
        reason = (
            f"devices differ: {', '.join(sorted(kinds))}; the memory of {unknown[0]} is not known, so none is taken"
        )
        skipped.append(Skipped(source, reason, _HINT, fact="hardware.gpu"))
        return base._replace(source=source, gpus_per_node=count, skipped=tuple(skipped))
    smallest, gpu, _ = min(resolved, key=lambda entry: entry[2] or 0)
    if any(device.mig for device in devices):
        skipped.append(
            Skipped(
                source,
                "MIG is on: its instances are the devices, with their nominal memory",
                _HINT,
                fact="hardware.gpu",
            )
        )
    if len(kinds) > 1:
        taken = gpu.name if gpu is not None else smallest.name
        reason = f"devices differ: {', '.join(sorted(kinds))}; {taken} is taken, the smallest"
        skipped.append(Skipped(source, reason, _HINT, fact="hardware.gpu"))
    name = gpu.name if gpu is not None else None if smallest.cut else smallest.name
    hardware = base._replace(
        source=source,
        gpu=name,
        memory_bytes=smallest.memory_bytes,
        compute_capability=smallest.compute_capability,
        gpus_per_node=count,
        skipped=tuple(skipped),
    )
    return hardware if gpu is None else fill_in(hardware, gpu)


def _look_up(device: Device) -> tuple[Gpu | None, int | None]:
    """Return the device's row of the catalogue where one alone fits, and its memory where that is known."""
    if device.mig:
        return None, device.memory_bytes
    try:
        find = find_cut_name if device.cut else find_gpus
        found = find(device.name, load_catalogue(), device.memory_bytes)
    except CompatcheckError:
        found = []
    gpu = found[0] if len(found) == 1 else None
    return gpu, device.memory_bytes or (gpu.memory_bytes if gpu is not None else None)
