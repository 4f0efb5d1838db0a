"""Devices and driver of this machine: NVML, else ``nvidia-smi``, else the kernel's own files, else unknown.

A tool that fails, hangs or prints something else than it was asked for is reported as "could not be read"; it never
reads as "no GPU". All of it together costs at most `BUDGET_SECONDS`, and nothing where there is no driver.
"""

import os
import re
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from compatcheck.core.hardware import Hardware
from compatcheck.core.source import Skipped, Source
from compatcheck.core.units import GIB, KIB, MIB

BUDGET_SECONDS = 4.0
_NVML_SECONDS = 1.5
_FIELDS = ("name", "memory.total", "driver_version", "mig.mode.current", "compute_cap")
_OLD_FIELDS = _FIELDS[:3]
"""What drivers before 510 know: a single unknown field makes the whole query fail."""
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
_NAME = r"[ -~]*[A-Za-z][ -~]+"
"""What a device can be called: noise on the pipe is no device."""
_HINT = "declare the devices: --gpu 8xH100-80GB"
_UNKNOWN = frozenset({"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "err!", "[gpu is lost]", "none"})


class Device(NamedTuple):
    """One device as a tool reported it; every field may be missing."""

    name: str
    memory_bytes: int | None = None
    compute_capability: float | None = None
    multiprocessors: int | None = None
    mig: bool = False
    """Whether the device is cut into MIG instances, which are then the devices of a job."""
    nvlink: bool | None = None


class Reading(NamedTuple):
    """What one tool said."""

    source: Source
    devices: tuple[Device, ...] = ()
    driver: str | None = None
    skipped: tuple[Skipped, ...] = ()


def collect_hardware(environ: Mapping[str, str] | None = None, *, root: str = "/") -> Hardware:
    """Read devices, driver and memory of this machine.

    Args:
        environ: environment variables, this process's by default; ``PATH`` finds ``nvidia-smi``.
        root: where ``proc``, ``dev`` and ``sys`` lie, for tests.
    """
    environ = os.environ if environ is None else environ
    host = read_host_memory(root)
    tool = find_nvidia_smi(environ, root)
    if tool is None and not any(os.path.exists(os.path.join(root, path[1:])) for path in _DRIVER_FILES):
        return Hardware(Source("this machine"), host_memory_bytes=host, skipped=_other_vendors(root))
    deadline = time.monotonic() + BUDGET_SECONDS
    skipped: list[Skipped] = []
    reading = read_nvml(min(_NVML_SECONDS, BUDGET_SECONDS))
    if reading is None or not (reading.devices or reading.driver):
        if reading is not None:
            skipped += reading.skipped
        reading = None
        if tool is not None:
            reading = read_nvidia_smi(tool, deadline, environ)
            skipped += reading.skipped
    else:
        skipped += reading.skipped
    driver = (reading.driver if reading is not None else None) or read_driver_version(root)
    if reading is None or not reading.devices:
        source = reading.source if reading is not None else Source("this machine")
        if not skipped:
            where = Source(os.path.join(root, "proc/driver/nvidia"))
            skipped.append(Skipped(where, "devices could not be read: nvidia-smi and NVML are not there", _HINT))
        return Hardware(source, driver=driver, host_memory_bytes=host, skipped=tuple(skipped))
    hardware, remarks = _summarise(reading)
    return hardware._replace(driver=driver, host_memory_bytes=host, skipped=(*skipped, *remarks))


def find_nvidia_smi(environ: Mapping[str, str], root: str = "/") -> str | None:
    """Return the path of ``nvidia-smi``, or None."""
    name = "nvidia-smi.exe" if sys.platform == "win32" else "nvidia-smi"
    folders = environ.get("PATH", "").split(os.pathsep)
    folders.append(os.path.join(root, "usr/lib/wsl/lib"))
    for folder in folders:
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def read_nvml(timeout_seconds: float) -> Reading | None:
    """Read through NVML in a thread that is abandoned when the driver hangs; None when pynvml is not installed."""
    import importlib  # noqa: PLC0415 (only where there is a driver)
    import threading  # noqa: PLC0415
    import warnings  # noqa: PLC0415

    source = Source("NVML")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package's old name says on import that it is deprecated
            pynvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    result: list[Reading] = []
    thread = threading.Thread(target=lambda: result.append(_query_nvml(pynvml, source)), daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    if result:
        return result[0]
    reason = f"could not be read: no answer within {round(timeout_seconds, 2):g} s"
    return Reading(source, skipped=(Skipped(source, reason, _HINT),))


def _query_nvml(nvml: object, source: Source) -> Reading:
    """Ask NVML; a call that fails leaves its field unknown."""

    def ask(name: str, *arguments: object) -> object:
        try:
            return getattr(nvml, name)(*arguments)
        except Exception:  # noqa: BLE001 (NVML errors are generated classes; any other failure reads the same)
            return None

    try:
        nvml.nvmlInit()  # type: ignore[attr-defined]  # pynvml has no types
        count = int(nvml.nvmlDeviceGetCount())  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 (as above)
        return Reading(source, skipped=(Skipped(source, f"could not be read: {error}", _HINT),))
    devices = []
    for index in range(count):
        handle = ask("nvmlDeviceGetHandleByIndex", index)
        name = _text(ask("nvmlDeviceGetName", handle))
        memory = getattr(ask("nvmlDeviceGetMemoryInfo", handle), "total", None)
        capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
        mig = ask("nvmlDeviceGetMigMode", handle)
        link = ask("nvmlDeviceGetNvLinkState", handle, 0)
        devices.append(
            Device(
                name or "",
                int(memory) if isinstance(memory, int) else None,
                float(f"{capability[0]}.{capability[1]}") if isinstance(capability, tuple | list) else None,
                None,
                bool(mig[0]) if isinstance(mig, tuple | list) else False,
                bool(link) if link is not None else None,
            )
        )
    driver = _text(ask("nvmlSystemGetDriverVersion"))
    ask("nvmlShutdown")
    if not devices:
        return Reading(source, (), driver, (Skipped(source, "NVML lists no device", _HINT),))
    return Reading(source, tuple(devices), driver)


def _text(value: object) -> str | None:
    """Return text of NVML, which older bindings give as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def read_nvidia_smi(tool: str, deadline: float, environ: Mapping[str, str]) -> Reading:
    """Read what ``nvidia-smi`` reports, by ``deadline`` of the monotonic clock at the latest."""
    from compatcheck.core.process import run  # noqa: PLC0415 (only where there is a driver)

    source = Source("nvidia-smi")
    for fields in (_FIELDS, _OLD_FIELDS):
        left = deadline - time.monotonic()
        if left <= 0:
            return Reading(source, skipped=(Skipped(source, "could not be read: out of time", _HINT),))
        command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        completed = run(command, timeout_seconds=left, environ=environ)
        if completed.succeeded or completed.failure is not None or "not a valid field" not in completed.output.lower():
            break
    if "no devices were found" in completed.output.lower():
        return Reading(source, skipped=(Skipped(source, "nvidia-smi found no devices", _HINT),))
    if not completed.succeeded:
        reason = f"could not be read: {completed.describe()}"
        return Reading(source, skipped=(Skipped(source, reason, "run nvidia-smi to see why, or " + _HINT),))
    reading = parse_nvidia_smi(completed.output, fields, source)
    if any(device.mig for device in reading.devices):
        left = max(deadline - time.monotonic(), 0.1)
        return _with_mig(reading, run([tool, "-L"], timeout_seconds=left, environ=environ).output)
    return reading


def parse_nvidia_smi(text: str, fields: tuple[str, ...], source: Source) -> Reading:
    """Parse the lines of ``--query-gpu`` in ``csv,noheader,nounits``; another shape is reported, not guessed."""
    devices = []
    driver = None
    skipped: list[Skipped] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(fields) or not re.fullmatch(_NAME, cells[0]) or not _known(cells[0]):
            if not skipped:
                skipped.append(Skipped(source, f"could not be read: unexpected line {line.strip()[:80]!r}", _HINT))
            continue
        row = {field: cell for field, cell in zip(fields, cells, strict=True) if _known(cell)}
        memory = _number(row.get("memory.total"))
        if memory is None:
            skipped.append(Skipped(source, f"memory of {cells[0]} could not be read: {cells[1]!r}", _HINT))
        version = row.get("driver_version")
        if version is not None and re.fullmatch(r"\d+(\.\d+)+", version):
            driver = version
        mig = row.get("mig.mode.current", "").lower() == "enabled"
        devices.append(
            Device(
                cells[0], int(memory * MIB) if memory is not None else None, _number(row.get("compute_cap")), mig=mig
            )
        )
    if not devices and not skipped:
        skipped.append(Skipped(source, "could not be read: nvidia-smi printed nothing", _HINT))
    return Reading(source, tuple(devices), driver, tuple(skipped))


def _known(cell: str) -> bool:
    return cell.lower() not in _UNKNOWN


def _number(cell: str | None) -> float | None:
    try:
        number = float(cell) if cell is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 < number < 2**40 else None


def _with_mig(reading: Reading, listing: str) -> Reading:
    """Replace devices that are cut up by their MIG instances, as ``nvidia-smi -L`` lists them."""
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
    if not instances:
        remark = "MIG is on and no instance could be listed: what a job can use is not known"
        instances = [device._replace(memory_bytes=None) for device in reading.devices if device.mig]
    skipped = (*reading.skipped, Skipped(reading.source, remark, _HINT))
    return reading._replace(devices=(*whole, *instances), skipped=skipped)


def _summarise(reading: Reading) -> tuple[Hardware, list[Skipped]]:
    """Describe a node by the device with the least memory, which is where a job runs out first."""
    from compatcheck.collectors.gpu import find_gpus, load_catalogue  # noqa: PLC0415 (only where there are devices)
    from compatcheck.core.errors import CompatcheckError  # noqa: PLC0415

    remarks = []
    devices = reading.devices
    names = sorted({device.name for device in devices})
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
    memory = smallest.memory_bytes
    if memory is None and gpu is not None:
        memory = gpu.memory_bytes
    capability = smallest.compute_capability
    if capability is None and gpu is not None:
        capability = gpu.compute_capability
    nvlink = smallest.nvlink
    if nvlink is None and gpu is not None:
        nvlink = gpu.nvlink
    hardware = Hardware(
        reading.source,
        gpu.name if gpu is not None else smallest.name or None,
        memory,
        capability,
        smallest.multiprocessors or (gpu.multiprocessors if gpu is not None else None),
        len(devices),
        nvlink=nvlink,
    )
    return hardware, remarks


def read_driver_version(root: str = "/") -> str | None:
    """Return the version of the loaded NVIDIA kernel module, or None."""
    text = _read(os.path.join(root, "proc/driver/nvidia/version"))
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return match[1] if match is not None else None


def read_host_memory(root: str = "/") -> int | None:
    """Return main memory in bytes: what the machine has, or what the container may use when that is less."""
    sizes = []
    for line in _read(os.path.join(root, "proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            sizes.append(int(line.split()[1]) * KIB)
            break
    for path in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(os.path.join(root, path)).strip()
        if text.isdigit():
            sizes.append(int(text))
    return min(sizes) if sizes else None


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
