"""``python -m torch.utils.collect_env`` of every release, and what vLLM made of it.

The labels are those of torch 1.0 to 2.15 and of vLLM's own script, which pads them and adds sections. What is printed where
something was not found is told apart: ``None`` is what torch says, ``No CUDA`` stands where CUDA cannot be used and none of its
tools was found, ``N/A`` where a build has no such thing or torch could not be imported, ``Could not collect`` for anything else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.python.conda_records import CondaPackage
from compatcheck.collectors.reports.report import (
    CUDA,
    DRIVER,
    Device,
    Field,
    PastedReport,
    find_fields,
    is_same,
    is_version,
    open_report,
    place,
    tidy,
)
from compatcheck.core.data_file import read_data
from compatcheck.core.markers import canonical_name
from compatcheck.core.source import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_TABLE = read_data(__file__, "collect_env")
_LABELS: list[str] = _TABLE["labels"]
"""In the order in which they are printed; vLLM's sections differ in what stands in front of torch's version."""
_ORDER = {label: index for index, label in enumerate(_LABELS)}
_LABEL = re.compile(
    r"(?<![A-Za-z0-9_.-])((?:"
    + "|".join(label.replace(" ", " {1,3}") for label in _LABELS)
    + r")(?= {0,40}:))[ ]{0,40}: ?"
    r"|(?<![A-Za-z0-9_.-])(Versions of relevant libraries)\b:?"
    r"|(\[(?:pip3?|conda)\]) ?"
    r"|(?<!=)(={10,80}) {1,40}[A-Z][\w /]{3,40}={10,80}(?!=)"
    r"|(?<!=)(={10,80})\n"
)
_OWN = frozenset(_TABLE["own"])
"""Labels that no other report has."""
_FEWEST = 2
_GAP = 12_000
"""Characters between two labels of one report at most: what the processor can do is a long list."""
_NOT_COLLECTED = "Could not collect"
_LISTED = re.compile(r"GPU {1,3}(\d{1,2}): {0,3}")
_MIG = re.compile(r"MIG {1,3}(\d{1,2}(?:c\.\d{1,2})?g\.(\d{1,3})gb(?:\+\w{1,8})?) {1,8}Device {1,3}\d{1,2}:?")
_PYTHON = re.compile(r"(\d\.\d{1,2}(?:\.\d{1,2}(?:rc\d{1,2}|a\d{1,2}|b\d{1,2}|\+)?)?)(?=$| [(|])")
_NVCC = re.compile(r"(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)(?=$| Build cuda)")
_ROCM = re.compile(r"(\d\.\d{1,2}(?:\.\d{1,6})?)(?:-[0-9a-f]{1,40})?")
_OLD_PACKAGE = re.compile(r"([\w.-]{1,80}) \(([^() ]{1,60})\)")
_ALLOCATOR = re.compile(r"[a-z_0-9]{3,60}:[\w.:,\[\]>]{1,400}")
_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]{2,60})=(\S*)")


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the reports of a part."""
    for fields in _split(find_fields(part.text, _LABEL, ("gpu models and configuration",))):
        report = open_report("collect_env", part, path, fields[0].start, fields[-1].end)
        for entry in fields:
            _take(entry, report, part, path)
        if any(entry.label in _VLLM for entry in fields):
            _take_variables(part, path, report, fields[-1])
        _settle(report)
        yield report


def _split(fields: list[Field]) -> Iterator[list[Field]]:
    """Split labels into reports: one that comes again, or out of order, begins another, and so does a long way between two."""
    current: list[Field] = []
    seen: set[str] = set()
    reached = 0
    for entry in fields:
        order = _AT_END if entry.label in _TAGS else _ORDER.get(entry.label, reached)
        first = entry.label == "PyTorch version" and not seen & _OWN
        again = order < reached or (entry.label in seen and entry.label in _ORDER)
        if current and (again or first or entry.start - current[-1].end > _GAP):
            yield from _accept(current)
            current, seen = [], set()
        current.append(entry)
        seen.add(entry.label)
        reached = order
    yield from _accept(current)


_AT_END = _ORDER["CPU"]
"""Where the lists of packages stand: only what vLLM adds comes behind them."""


def _accept(fields: list[Field]) -> Iterator[list[Field]]:
    labels = {entry.label for entry in fields}
    if len(labels & _OWN) >= _FEWEST or (labels & _OWN and "PyTorch version" in labels) or labels & _TAGS:
        yield fields


_VLLM = frozenset({"vLLM Build Flags", "GPU Topology", "vLLM Version"})
_TAGS = frozenset({"[pip]", "[pip3]", "[conda]"})


def _take(entry: Field, report: PastedReport, part: Part, path: str) -> None:  # noqa: C901, PLR0912, PLR0915 (one case a label)
    label, value = entry.label, entry.value
    source = place(part, entry.start, path, label)
    if label.startswith("["):
        _take_package(label, entry, report, part, path)
        return
    if value == _NOT_COLLECTED and label in _DECIDES:
        report.skipped.append(
            Skipped(source, f"{label}: the report could not collect it", _DECLARE, fact=_DECIDES[label])
        )
    match label:
        case "PyTorch version":
            if value == "N/A":
                report.notes.append(f"{source}: torch could not be imported where the report was made")
            else:
                report.add_package("torch", value, source)
        case "CUDA used to build PyTorch":
            if CUDA.fullmatch(value):
                report.values["runtime.torch_cuda"] = (value, source)
            elif value == "None":
                report.values["runtime.torch_cuda"] = (None, source)
        case "ROCM used to build PyTorch" | "HIP used to build PyTorch":
            if _ROCM.fullmatch(value):
                report.values["runtime.torch_build"] = ("rocm", source)
                report.values["runtime.torch_cuda"] = (None, source)
        case "XPU used to build PyTorch":
            if re.fullmatch(r"\d{4,8}(?:\.\d{1,2}){0,3}", value):
                report.values["runtime.torch_build"] = ("xpu", source)
                report.values["runtime.torch_cuda"] = (None, source)
        case "Python version":
            found = _PYTHON.match(value)
            if found is not None:
                report.values["python"] = (found[1].rstrip("+"), source)
        case "CUDA runtime version":
            found = _NVCC.match(value)
            if found is not None:
                report.values["runtime.nvcc"] = (found[1], source)
            elif value == "No CUDA":
                report.values["runtime.nvcc"] = (None, source)
        case "Nvidia driver version":
            if DRIVER.fullmatch(value):
                report.values["driver"] = (value, source)
            elif value == "No CUDA":
                report.notes.append(f"{source}: no NVIDIA driver was found where the report was made")
        case "GPU models and configuration":
            _take_devices(entry, report, part, path)
        case "cuDNN version":
            if "libcudnn" in value or value.startswith("Probably one"):
                report.notes.append(
                    f"{source}: names cuDNN of the system, which need not be what torch loads; not used"
                )
        case "vLLM Version":
            version = re.match(r"v?(\d[^\s@(]{1,60})(?=$|@| \()", value)
            if version is not None:
                report.add_package("vllm", version[1], source)
        case "Caching allocator config":
            if _ALLOCATOR.fullmatch(value):
                report.variables.setdefault("PYTORCH_CUDA_ALLOC_CONF", value)
                report.variables_source = report.variables_source or source
        case _:
            pass


_DECLARE = "declare them: --gpu 8xH100-80GB --driver 550.54.15"
_DECIDES = {"Nvidia driver version": "hardware.driver", "GPU models and configuration": "hardware.gpu"}


def _take_package(tag: str, entry: Field, report: PastedReport, part: Part, path: str) -> None:
    source = place(part, entry.start, path, tag)
    if tag == "[conda]":
        words = entry.value.split()
        if len(words) < 3 or not is_version(words[1]):
            return
        if words[3:4] == ["pypi"] or words[2].startswith("pypi"):
            if canonical_name(words[0]) not in report.packages:
                report.add_package(words[0], words[1], source)
        else:
            report.conda.setdefault(words[0], CondaPackage(words[0], words[1], words[2], path))
        return
    name, equals, version = (word.strip() for word in entry.value.partition("=="))
    old = None if equals else _OLD_PACKAGE.fullmatch(entry.value)
    if old is not None:
        name, version = old[1], old[2]
    known = report.packages.get("torch")
    if name == "torch" and known is not None and known.version is not None and is_version(version):
        report.disowned = report.disowned or not is_same(known.version, version)
    report.add_package(name, version, source)


def _take_devices(entry: Field, report: PastedReport, part: Part, path: str) -> None:
    """Take the list of devices, or the one device that torch names on ROCm."""
    source = place(part, entry.start, path, entry.label)
    if entry.value in {"No CUDA", _NOT_COLLECTED, "N/A", ""} and _LISTED.search(entry.rest) is None:
        if entry.value == "No CUDA":
            report.notes.append(f"{source}: no CUDA device where the report was made")
        return
    marks = list(_LISTED.finditer(entry.rest))
    if not marks:
        name = re.sub(r" ?\(gfx\w{3,8}[^()]{0,60}\)$|NoGCNArchNameOnOldPyTorch$", "", entry.value)
        if name != entry.value and is_device_name(name):
            report.devices, report.devices_source, report.others = [Device(name)], source, True
        return
    for index, mark in enumerate(marks):
        last = index + 1 == len(marks)
        piece = entry.rest[mark.end() : None if last else marks[index + 1].start()]
        name, broken, below = piece.partition("\n")
        instances = list(_MIG.finditer(piece))
        if instances:
            name = piece[: instances[0].start()]
        name = tidy(_UUID.sub("", tidy(name)))
        repeated = any(device.name == name for device in report.devices)
        ended = bool(entry.following) or (bool(broken) and repeated)
        if int(mark[1]) != index or not is_device_name(name) or (last and not ended):
            break  # what stands at the end of a text may be the beginning of a longer name
        if instances:
            report.devices += [_instance(name, found) for found in instances]
        else:
            report.devices.append(Device(name))
        report.whole = (
            last and entry.following == "Nvidia driver version" and (bool(instances) or re.search(r"\w", below) is None)
        )
    if report.devices:
        report.devices_source = source


_UUID = re.compile(r" {0,3}\(UUID: [\w-]{1,60}\)?")
_LONGEST_NAME = 60
_GIB = 1 << 30


def _instance(parent: str, found: re.Match[str]) -> Device:
    return Device(f"{parent} MIG {found[1]}", int(found[2]) * _GIB, mig=True)


def is_device_name(text: str) -> bool:
    """Tell whether a text can be the name of a device; one that ends in dots was cut off."""
    return (
        len(text) <= _LONGEST_NAME
        and re.fullmatch(r"[A-Za-z][\w .+/()-]*[\w)]", text) is not None
        and re.search(r"\d|TITAN", text) is not None
    )


def _take_variables(part: Part, path: str, report: PastedReport, last: Field) -> None:
    """Take the variables that vLLM's script prints at the end, a line each."""
    position = last.start
    for _ in range(_MOST_LINES):
        end = part.text.find("\n", position)
        if end < 0:
            return
        line = part.text[position:end].strip() if end - position <= _LONGEST_VARIABLE else ""
        found = _VARIABLE.fullmatch(line)
        if found is not None:
            report.variables.setdefault(found[1], found[2])
            report.variables_source = report.variables_source or place(part, position, path)
            report.end = end
        elif line and report.variables:
            return
        position = end + 1


_MOST_LINES = 60
_LONGEST_VARIABLE = 2000


def _settle(report: PastedReport) -> None:
    """Reconcile what one report says twice: torch as it was imported against pip's and conda's lists of it."""
    torch = report.packages.get("torch")
    if torch is not None and report.disowned:
        report.notes.append(
            f"{report.source}: pip lists another torch than the {torch.version} that was imported: its list is of another "
            "interpreter and was not used"
        )
        report.packages = {
            name: package
            for name, package in report.packages.items()
            if not (package.source.key or "").startswith("[pip")
        }
    record = report.conda.get("pytorch")
    if record is None:
        return
    if torch is None:
        report.add_package("torch", record.version, report.source)
    elif torch.version is not None and not is_same(record.version, torch.version):
        report.notes.append(
            f"{report.source}: conda lists torch {record.version} beside {torch.version}; conda's list was not used"
        )
        report.conda.clear()
