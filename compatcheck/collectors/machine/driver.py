"""Devices and driver of this machine: by ``nvidia-smi``, else the kernel's own files, else unknown.

A tool that fails, hangs or prints something else than it was asked for is reported as "could not be read"; it never
reads as "no GPU". All of it together costs at most `BUDGET_SECONDS`, and nothing where there is no driver.
"""

import os
import re
import time
from collections.abc import Mapping

from compatcheck.core.hardware import Hardware
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.programs import find_program, small_environment
from compatcheck.core.source import Skipped, Source
from compatcheck.core.units import GIB, KIB, MIB, parse_count

BUDGET_SECONDS = 4.0
_FIELDS = ("name", "memory.total", "driver_version", "mig.mode.current", "compute_cap")
_OLD_FIELDS = _FIELDS[:3]
"""What drivers before 510 know: a single unknown field makes the whole query fail."""
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
_NAME = r"[ -~]*[A-Za-z][ -~]+"
"""What a device can be called: noise on the pipe is no device."""
_HINT = "declare the devices: --gpu 8xH100-80GB"
_UNKNOWN = frozenset({"", "n/a", "err!", "none"})
"""Cells without a value; so is everything in brackets: ``[N/A]``, ``[Not Supported]``, ``[Not Found]``."""
_SMALLEST, _LARGEST = 128 * MIB, 4096 * GIB
"""Memory no device has less of, or more: whatever lies outside is a wrong answer."""
_CAPABILITY = r"[1-9]\d?\.\d"
_DRIVER = r"\d{2,4}(\.\d+)+"


class Device(NamedTuple):
    """One device as a tool reported it; every field may be missing."""

    name: str
    memory_bytes: int | None = None
    compute_capability: float | None = None
    mig: bool = False
    """Whether the device is cut into MIG instances, which are then the devices of a job."""


class DeviceReading(NamedTuple):
    """What one tool said."""

    source: Source
    devices: tuple[Device, ...] = ()
    driver: str | None = None
    skipped: tuple[Skipped, ...] = ()
    listing: Source | None = None
    """The call that listed MIG instances."""
    unread: bool = False
    """Whether devices are cut into instances that could not be listed: neither their number nor their memory is known."""


def collect_hardware(environ: Mapping[str, str] | None = None, *, root: str = "/") -> Hardware:
    """Read devices, driver and memory of this machine.

    Args:
        environ: environment variables, this process's by default; ``PATH`` finds ``nvidia-smi``.
        root: where ``proc``, ``dev`` and ``sys`` lie, for tests.
    """
    environ = os.environ if environ is None else environ
    memory = read_host_memory(root)
    host, sources = (None, {}) if memory is None else (memory[0], {"host_memory_bytes": memory[1]})
    here = Source("this machine")
    program = find_program("nvidia-smi", environ, own=False, also=(os.path.join(root, "usr/lib/wsl/lib"),))
    tool = program.path
    refused = () if program.refused is None else (Skipped(Source(program.refused), program.describe_absence(), _HINT),)
    if tool is None and not any(os.path.exists(os.path.join(root, path[1:])) for path in _DRIVER_FILES):
        return Hardware(here, host_memory_bytes=host, skipped=(*refused, *_other_vendors(root)), sources=sources)
    deadline = time.monotonic() + BUDGET_SECONDS
    skipped: list[Skipped] = list(refused if tool is None else ())
    reading = read_nvidia_smi(tool, deadline, environ) if tool is not None else DeviceReading(here)
    if tool is not None and any(device.mig for device in reading.devices):
        reading = _with_mig(reading, tool, deadline, environ)
    skipped += reading.skipped
    driver = reading.driver
    if driver is None and (version := read_driver_version(root)) is not None:
        driver, sources["driver"] = version
    if not reading.devices:
        if not skipped:
            where = Source(os.path.join(root, "proc/driver/nvidia"))
            skipped.append(Skipped(where, "devices could not be read: nvidia-smi is not there", _HINT))
        return Hardware(reading.source, driver=driver, host_memory_bytes=host, skipped=tuple(skipped), sources=sources)
    hardware, remarks = _summarise(reading)
    return hardware._replace(
        driver=driver,
        host_memory_bytes=host,
        skipped=(*skipped, *remarks),
        sources={**hardware.sources, **sources},
    )


class _Checks:
    """Keep an answer that a device can give; say "could not be read" of any other, once for equal words."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.skipped: list[Skipped] = []

    def say(self, reason: str) -> None:
        entry = Skipped(self.source, reason, _HINT)
        if entry not in self.skipped:
            self.skipped.append(entry)

    def memory(self, name: str, text: str | None, unit: int) -> int | None:
        """Return memory in bytes of a number of ``unit`` bytes; missing memory is said as well."""
        if text is not None and re.fullmatch(r"\d{1,18}(\.\d+)?", text):
            size = int(float(text) * unit)
            if _SMALLEST <= size <= _LARGEST:
                return size
        self.say(f"memory of {name} could not be read: {text!r}")
        return None

    def capability(self, name: str, text: str | None) -> float | None:
        if text is None:
            return None
        if re.fullmatch(_CAPABILITY, text):
            return float(text)
        self.say(f"compute capability of {name} could not be read: {text!r}")
        return None

    def driver(self, text: str | None) -> str | None:
        if text is None or re.fullmatch(_DRIVER, text):
            return text
        self.say(f"driver version could not be read: {text!r}")
        return None


def read_nvidia_smi(tool: str, deadline: float, environ: Mapping[str, str]) -> DeviceReading:
    """Read what ``nvidia-smi`` reports, by ``deadline`` of the monotonic clock at the latest."""
    from compatcheck.core.process import run  # noqa: PLC0415 (only where there is a driver)

    source = Source("nvidia-smi")
    for fields in (_FIELDS, _OLD_FIELDS):
        left = deadline - time.monotonic()
        if left <= 0:
            return DeviceReading(source, skipped=(Skipped(source, "could not be read: out of time", _HINT),))
        command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        completed = run(command, timeout_seconds=left, environ=small_environment(environ))
        if completed.succeeded or completed.failure is not None or "not a valid field" not in completed.output.lower():
            break
    if "no devices were found" in completed.output.lower():
        return DeviceReading(source, skipped=(Skipped(source, "nvidia-smi found no devices", _HINT),))
    if not completed.succeeded:
        reason = f"could not be read: {completed.describe()}"
        return DeviceReading(source, skipped=(Skipped(source, reason, "run nvidia-smi to see why, or " + _HINT),))
    return parse_nvidia_smi(completed.output, fields, source)


def parse_nvidia_smi(text: str, fields: tuple[str, ...], source: Source) -> DeviceReading:
    """Parse the lines of ``--query-gpu`` in ``csv,noheader,nounits``; another shape is reported, not guessed."""
    devices = []
    driver = None
    checks = _Checks(source)
    odd = False
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(fields) or not _is_name(cells[0]):
            if not odd:
                checks.say(f"could not be read: unexpected line {line.strip()[:80]!r}")
            odd = True
            continue
        name = cells[0]
        row = {field: cell for field, cell in zip(fields, cells, strict=True) if _known(cell)}
        driver = checks.driver(row.get("driver_version")) or driver
        mig = row.get("mig.mode.current", "").lower() == "enabled"
        memory = checks.memory(name, cells[1], MIB)
        devices.append(Device(name, memory, checks.capability(name, row.get("compute_cap")), mig=mig))
    if not devices and not checks.skipped:
        checks.say("could not be read: nvidia-smi printed nothing")
    return DeviceReading(source, tuple(devices), driver, tuple(checks.skipped))


def _known(cell: str) -> bool:
    return cell.lower() not in _UNKNOWN and re.fullmatch(r"\[.*\]", cell) is None


def _is_name(text: str) -> bool:
    return _known(text) and re.fullmatch(_NAME, text) is not None


def _with_mig(reading: DeviceReading, tool: str, deadline: float, environ: Mapping[str, str]) -> DeviceReading:
    """Replace devices that are cut up by their MIG instances, as ``nvidia-smi -L`` lists them.

    Where they cannot be listed, the device keeps its name and loses its memory: what a job can use is not known.
    """
    from compatcheck.core.process import run  # noqa: PLC0415 (only where there is a driver)

    source = Source("nvidia-smi -L")
    completed = run(
        [tool, "-L"], timeout_seconds=max(deadline - time.monotonic(), 0.1), environ=small_environment(environ)
    )
    listing = completed.output if completed.succeeded else ""
    why = "it lists none" if completed.succeeded else completed.describe()
    instances = []
    parent = ""
    for line in listing.splitlines():
        device = re.match(r"GPU \d+: (.*?) \(UUID", line)
        if device is not None:
            parent = device[1]
        instance = re.match(r"\s+MIG (\S+)\s", line)
        if instance is not None:
            size = re.search(r"\.(\d+)gb", instance[1])
            memory = int(size[1]) * GIB if size else None
            instances.append(Device(f"{parent} MIG {instance[1]}", memory, mig=True))
    whole = [device for device in reading.devices if not device.mig]
    remark = "MIG is on: its instances are the devices, with their nominal memory"
    unread = not instances
    if unread:
        remark = f"MIG is on and the MIG instances could not be read: {why}; what a job can use is not known"
        instances = [device._replace(memory_bytes=None) for device in reading.devices if device.mig]
    skipped = (*reading.skipped, Skipped(source, remark, _HINT))
    return reading._replace(devices=(*whole, *instances), skipped=skipped, listing=source, unread=unread)


def _summarise(reading: DeviceReading) -> tuple[Hardware, list[Skipped]]:
    """Describe a node by the device with the least memory, which is where a job runs out first."""
    from compatcheck.collectors.machine.catalogue import fill_in, find_gpus, load_catalogue  # noqa: PLC0415 (only where there are devices)
    from compatcheck.core.errors import CompatcheckError  # noqa: PLC0415

    remarks = []
    devices = reading.devices
    names = sorted({device.name for device in devices})
    if reading.unread:
        # an instance of unknown size is where a job runs out first
        devices = tuple(device for device in devices if device.mig)
    smallest = min(devices, key=lambda device: device.memory_bytes if device.memory_bytes is not None else 2**62)
    if len(names) > 1:
        remarks.append(
            Skipped(
                reading.source, f"devices differ: {', '.join(names)}; {smallest.name} is taken, the smallest", _HINT
            )
        )
    try:
        found = find_gpus(smallest.name, load_catalogue(), smallest.memory_bytes)
    except CompatcheckError:
        found = []
    gpu = found[0] if len(found) == 1 and not smallest.mig else None
    hardware = Hardware(
        reading.source,
        gpu.name if gpu is not None else smallest.name or None,
        smallest.memory_bytes,
        smallest.compute_capability,
        gpus_per_node=len(reading.devices) if not reading.unread else None,
    )
    if smallest.mig and reading.listing is not None and not reading.unread:
        hardware = hardware._replace(sources=dict.fromkeys(("gpu", "memory_bytes", "gpus_per_node"), reading.listing))
    return hardware if gpu is None else fill_in(hardware, gpu), remarks


def read_driver_version(root: str = "/") -> tuple[str, Source] | None:
    """Return the version of the loaded NVIDIA kernel module and the file that states it, or None."""
    path = os.path.join(root, "proc/driver/nvidia/version")
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", _read(path))
    return (match[1], Source(path)) if match is not None else None


def read_host_memory(root: str = "/") -> tuple[int, Source] | None:
    """Return main memory in bytes, what the machine has or the container may use when that is less, and who said so."""
    sizes = []
    path = os.path.join(root, "proc/meminfo")
    for line in _read(path).splitlines():
        words = line.split()
        if words[:1] == ["MemTotal:"] and words[1:2] and words[1].isdecimal():
            sizes.append((int(words[1]) * KIB, Source(path)))
            break
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = os.path.join(root, name)
        text = _read(path).strip()
        if (size := parse_count(text)) is not None:
            sizes.append((size, Source(path)))
    return min(sizes, key=lambda size: size[0]) if sizes else None


def _other_vendors(root: str) -> tuple[Skipped, ...]:
    if os.path.exists(os.path.join(root, "dev/kfd")):
        return (
            Skipped(
                Source(os.path.join(root, "dev/kfd")), "devices of AMD are not read", "declare them: --gpu 8xMI300X"
            ),
        )
    return ()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
