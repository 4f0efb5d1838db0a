"""Everything a bug report needs about an environment: what ``torch.utils.collect_env`` prints and more, without torch.

Nothing of the inspected environment is run. Compilers and ``nvidia-smi`` are, each with a short limit; what they do not
answer in time reads "could not be read". Fields that only a running torch knows (whether CUDA is available) are left
out and named in ``not_collected``.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.machine.driver import collect_hardware
from compatcheck.collectors.machine.variables import collect_variables
from compatcheck.collectors.python.distributions import split_stem
from compatcheck.collectors.python.installed import collect_installed
from compatcheck.collectors.python.version_files import read_version_file
from compatcheck.core.process import run
from compatcheck.core.redaction import redact
from compatcheck.core.source import Source
from compatcheck.core.units import format_bytes

if TYPE_CHECKING:
    from compatcheck.collectors.python.interpreter import Layout
    from compatcheck.core.environment import Environment
    from compatcheck.core.hardware import Hardware

TOOL_SECONDS = 2.0
_TOOLS = {
    "gcc": (("gcc", "--version"), r"\s(\d+\.\d+[^\s)]*)\s*$"),
    "clang": (("clang", "--version"), r"clang version (\S+)"),
    "cmake": (("cmake", "--version"), r"cmake version (\S+)"),
    "nvcc": (("nvcc", "--version"), r"release .+ V(\S+)"),
    "ninja": (("ninja", "--version"), r"^(\S+)"),
}
"""Tool → command and the pattern of its version."""
NOT_COLLECTED = {
    "is_cuda_available": "only a running torch knows",
    "is_xpu_available": "only a running torch knows",
    "is_xnnpack_available": "only a running torch knows",
    "hip_runtime_version": "only a running torch knows",
    "miopen_runtime_version": "only a running torch knows",
}
_LIBRARY_FOLDERS = (
    "usr/lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/cuda/lib64",
)
_VENDORED_DEPTH = 6


def collect_dump(layout: Layout, environ: Mapping[str, str], *, root: str = "/") -> dict[str, Any]:
    """Collect everything, as data that JSON can hold; credentials are hidden.

    Args:
        layout: the environment to inspect.
        environ: variables of this process.
        root: where ``proc``, ``dev``, ``sys`` and ``usr`` lie, for tests.
    """
    environment = collect_installed(layout, details=True)
    hardware = collect_hardware(environ, root=root)
    variables = collect_variables(environ, Source("environment of this process"))
    dump: dict[str, Any] = {
        "system": _describe_system(root),
        "cpu": _describe_cpu(root),
        "limits": _describe_limits(root),
        "python": {
            "version": environment.python,
            "executable": layout.executable,
            "prefix": layout.prefix,
            "chosen_by": layout.chosen,
            "site_packages": list(layout.site_packages),
            "python_path": list(layout.python_path),
            "tool_python": sys.version.replace("\n", " "),
        },
        "torch": _describe_torch(environment),
        "tools": {name: _tool_version(name, environ) for name in _TOOLS},
        "gpu": {
            "name": hardware.gpu,
            "count": hardware.gpus_per_node,
            "memory_bytes": hardware.memory_bytes,
            "compute_capability": hardware.compute_capability,
            "multiprocessors": hardware.multiprocessors,
            "nvlink": hardware.nvlink,
            "driver": hardware.driver,
            "read_from": _read_from(hardware),
            "read_elsewhere": {
                name: source.path for name, source in sorted(hardware.sources.items()) if name != "host_memory_bytes"
            },
            "could_not_be_read": [f"{skipped.source}: {skipped.reason}" for skipped in hardware.skipped],
        },
        "cudnn_files": find_cudnn(layout, root),
        "components": {
            name: {"version": package.version, "source": package.source.path}
            for name, package in sorted(environment.components.items())
        },
        "packages": [
            {"name": name, "version": package.version, **package.details, "source": package.source.path}
            for name, package in sorted(environment.packages.items())
        ],
        "conda_packages": _conda_packages(layout),
        "vendored": [
            {"name": name, "version": version, "source": path} for name, version, path in find_vendored(layout)
        ],
        "variables": dict(sorted(variables.values.items())),
        "damage": [
            {"kind": damage.kind, "package": damage.package, "detail": damage.detail} for damage in environment.damage
        ],
        "skipped": [f"{skipped.source}: {skipped.reason}" for skipped in (*environment.skipped, *variables.skipped)],
        "notes": list(environment.notes),
        "not_collected": NOT_COLLECTED,
    }
    redacted = _redact(dump)
    assert isinstance(redacted, dict)  # noqa: S101 (same shape)
    return redacted


def format_dump(dump: Mapping[str, Any]) -> str:
    """Format a dump for people, in sections, to be pasted into an issue."""
    lines: list[str] = []
    for section, content in dump.items():
        lines.append(f"{section.replace('_', ' ')}:")
        if content is None:
            lines.append("  unknown")
        elif section in {"packages", "vendored"}:
            lines += [f"  {_format_package(package)}" for package in content] or ["  none"]
        elif isinstance(content, Mapping):
            written = section in {"variables", "not_collected"}
            absent = "not found" if section == "tools" else "unknown"
            for key, value in content.items():
                name = key if written else key.replace("_", " ")
                lines.append(f"  {name}: {absent if value is None else _format(key, value)}")
            lines += [] if content else ["  none"]
        else:
            lines += [f"  {_format('', value)}" for value in content] or ["  none"]
        lines.append("")
    return "\n".join(lines)


def _format_package(package: Mapping[str, Any]) -> str:
    more = [f"{key}: {value}" for key, value in package.items() if key not in {"name", "version", "source"}]
    text = f"{package['name']}=={package['version'] or 'unknown'}"
    return text + (f" ({', '.join(more)})" if more else "")


def _format(key: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_bytes") and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format(name, item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)


def find_vendored(layout: Layout) -> Iterator[tuple[str, str, str]]:
    """Find the copies that packages carry inside themselves: name, version, directory. None is imported as such."""
    for folder in layout.site_packages:
        yield from _walk(folder, 0)


def _walk(folder: str, depth: int) -> Iterator[tuple[str, str, str]]:
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in ordered:
        if not entry.is_dir(follow_symlinks=False) or entry.name == "__pycache__":
            continue
        if entry.name.endswith(".dist-info"):
            parts = split_stem(entry.name[: -len(".dist-info")])
            if depth and parts is not None:
                yield parts[0], parts[1], entry.path
        elif depth < _VENDORED_DEPTH and not entry.name.endswith((".egg-info", ".libs")):
            yield from _walk(entry.path, depth + 1)


def find_cudnn(layout: Layout, root: str = "/") -> list[str]:
    """List the cuDNN libraries that could be loaded: of wheels, of torch, of the prefix and of the system."""
    folders = []
    for site in layout.site_packages:
        folders += [os.path.join(site, "nvidia", "cudnn", "lib"), os.path.join(site, "torch", "lib")]
        # Wheels for CUDA 13 share one directory.
        folders.append(os.path.join(site, "nvidia", "cu13", "lib"))
    folders.append(os.path.join(layout.prefix, "lib"))
    folders += [os.path.join(root, folder) for folder in _LIBRARY_FOLDERS]
    found: set[str] = set()
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found.update(os.path.realpath(os.path.join(folder, name)) for name in names if name.startswith("libcudnn"))
    return sorted(found)


def _describe_system(root: str) -> dict[str, Any]:
    release = {}
    for line in _read(os.path.join(root, "etc/os-release")).splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    return {
        "os": release.get("PRETTY_NAME") or platform.platform(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": "-".join(platform.libc_ver()).strip("-") or None,
        "platform": platform.platform(),
        "container": _container(root),
    }


def _container(root: str) -> str | None:
    if os.path.exists(os.path.join(root, ".dockerenv")):
        return "docker"
    if os.path.exists(os.path.join(root, "run/.containerenv")):
        return "podman"
    return "kubernetes" if os.environ.get("KUBERNETES_SERVICE_HOST") else None


def _describe_cpu(root: str) -> dict[str, Any]:
    """Describe the processors as ``lscpu`` does, from the kernel's own file."""
    fields: dict[str, str] = {}
    sockets = set()
    count = 0
    for line in _read(os.path.join(root, "proc/cpuinfo"), 4 * 2**20).splitlines():
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        count += key == "processor"
        if key == "physical id":
            sockets.add(value)
        fields.setdefault(key, value)
    try:
        nodes = os.listdir(os.path.join(root, "sys/devices/system/node"))
    except OSError:
        nodes = []
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "model": fields.get("model name") or fields.get("CPU part") or platform.processor() or None,
        "vendor": fields.get("vendor_id"),
        "processors": count or os.cpu_count(),
        "usable_processors": affinity,
        "sockets": len(sockets) or None,
        "cores_per_socket": fields.get("cpu cores"),
        "numa_nodes": len([name for name in nodes if re.fullmatch(r"node\d+", name)]) or None,
        "mhz": fields.get("cpu MHz"),
        "flags": fields.get("flags") or fields.get("Features"),
    }


def _describe_limits(root: str) -> dict[str, Any]:
    """Describe memory and the limits on it, which end jobs more often than the devices do."""
    memory = {}
    for line in _read(os.path.join(root, "proc/meminfo")).splitlines():
        key, _, value = line.partition(":")
        if value.split()[:1] and value.split()[0].isdigit():
            memory[key] = int(value.split()[0]) * 1024
    limit = None
    for path in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(os.path.join(root, path)).strip()
        if text.isdigit() and int(text) < 2**60:
            limit = int(text)
            break
    return {
        "memory_bytes": memory.get("MemTotal"),
        "available_bytes": memory.get("MemAvailable"),
        "swap_bytes": memory.get("SwapTotal"),
        "cgroup_memory_limit_bytes": limit,
        "shm_bytes": read_shm_bytes(root),
        "memlock_bytes": _memlock(),
        "huge_pages": _read(os.path.join(root, "sys/kernel/mm/transparent_hugepage/enabled")).strip() or None,
    }


def read_shm_bytes(root: str = "/") -> int | None:
    """Return the size of ``/dev/shm`` in bytes, or None."""
    try:
        status = os.statvfs(os.path.join(root, "dev/shm"))
    except (OSError, AttributeError):
        return None
    return status.f_frsize * status.f_blocks


def _memlock() -> int | str | None:
    try:
        import resource  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else soft


def _describe_torch(environment: Environment) -> dict[str, Any] | None:
    package = environment.packages.get("torch")
    if package is None:
        return None
    described: dict[str, Any] = {"version": package.version}
    try:
        file = read_version_file("torch", os.path.dirname(package.source.path), package)
    except OSError as error:
        described["version_file"] = f"could not be read: {error.strerror}"
        file = None
    if file is not None:
        described["version_file"] = file.path
        for key, name in (
            ("__version__", "version_file_says"),
            ("debug", "debug"),
            ("cuda", "built_for_cuda"),
            ("hip", "built_for_rocm"),
            ("xpu", "built_for_xpu"),
            ("git_version", "git_version"),
        ):
            if key in file.values:
                value = file.values[key]
                described[name] = "none" if value is None else value
    for fact, name in (("runtime.torch_build", "build"), ("runtime.cxx11_abi", "cxx11_abi")):
        if fact in environment.facts:
            described[name] = environment.facts[fact][0]
    return described


def _read_from(hardware: Hardware) -> str:
    if hardware.driver is None and hardware.gpu is None and not hardware.skipped:
        return "nothing: this machine has no driver of NVIDIA"
    return hardware.source.path


def _conda_packages(layout: Layout) -> list[str]:
    if not layout.conda_meta:
        return []
    from compatcheck.collectors.conda.records import read_conda_meta  # noqa: PLC0415 (conda prefixes only)

    found = []
    for folder in layout.conda_meta:
        try:
            found += [f"{record.name} {record.version} {record.build}" for record in read_conda_meta(folder).values()]
        except OSError:
            continue
    return sorted(found)


def _tool_version(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the version of a build tool, None when it is not on PATH, or why it could not be read."""
    command, pattern = _TOOLS[name]
    path = _which(command[0], environ)
    if path is None:
        return None
    completed = run([path, *command[1:]], timeout_seconds=TOOL_SECONDS, environ=environ, output_limit_bytes=2**16)
    if not completed.succeeded:
        return f"could not be read: {completed.describe()}"
    match = re.search(pattern, completed.output, re.MULTILINE)
    return match[1] if match is not None else completed.output.partition("\n")[0].strip()[:80] or None


def _which(name: str, environ: Mapping[str, str]) -> str | None:
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name + (".exe" if sys.platform == "win32" else ""))
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _redact(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(item) for item in value]
    return value


def _read(path: str, limit: int = 65536) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""
