"""What verl's ``scripts/diagnose.py`` prints: sections between dashes, a label and a value on each line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.collect_env import is_device_name
from compatcheck.collectors.reports.report import CUDA, Device, PastedReport, open_report, place
from compatcheck.core.units import GIB, parse_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_SECTION = re.compile(
    r"(?:(?<=\n)|(?<=\A)) {0,8}-{4,20}(Python Info|Pip Info|verl Info|System Info|Environment|[A-Z][\w ]{2,30})-{4,20}(?=\n)"
)
_LINE = re.compile(r"(?:(?<=\n)|(?<=\A)) {0,8}([A-Za-z][\w ]{1,30}?) {0,20}: {0,4}([^\n]{1,200})(?=\n)")
_OWN = {"verl Info", "Python Info", "Pip Info"}
_PACKAGES = ("vllm", "sglang", "ray", "torch")
_DEVICE = re.compile(r"GPU (\d{1,2}) {1,8}(Type|Memory)")
_SIZE = re.compile(r"(\d{1,7}\.\d{2}) GB")
_NVCC = re.compile(r"release \d{1,2}\.\d{1,2}, V(\d{1,2}\.\d{1,2}\.\d{1,4})")


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the report of a part; a second one in it contradicts or repeats the first and is left to the reader of lists."""
    sections = list(_SECTION.finditer(part.text))
    if len({section[1] for section in sections} & _OWN) < 2:
        return
    report = open_report("verl diagnose", part, path, sections[0].start(), sections[0].end())
    seen: set[str] = set()
    ends = [section.start() for section in sections[1:]] + [len(part.text)]
    for section, end in zip(sections, ends, strict=True):
        if section[1] in seen:
            break
        seen.add(section[1])
        for line in _LINE.finditer(part.text, section.end(), end):
            if _take(section[1], line, report, part, path):
                report.end = max(report.end, line.end())
    counted = report.values.pop("gpu count", None)
    report.whole = counted is not None and len(report.devices) == counted[0]
    yield report


def _take(section: str, line: re.Match[str], report: PastedReport, part: Part, path: str) -> bool:
    """Take one line; tell whether it states something."""
    label, value, source = " ".join(line[1].split()), line[2].strip(), place(part, line.start(), path, line[1].strip())
    device = _DEVICE.fullmatch(label)
    size = _SIZE.fullmatch(value)
    match section, label:
        case "Python Info", "Version" if re.fullmatch(r"3\.\d{1,2}\.\d{1,2}", value):
            report.values["python"] = (value, source)
        case "verl Info", "Version":
            report.add_package("verl", value, source)
        case "Pip Info", name if name in _PACKAGES:
            if value.startswith("not found"):
                report.add_absent(name, source)
            else:
                report.add_package(name, value, source)
        case "Environment", "CUDA Runtime" if CUDA.fullmatch(value):
            report.values["runtime.torch_cuda"] = (value, source)
        case "Environment", "CUDA Compiler" if (found := _NVCC.search(value)) is not None:
            report.values["runtime.nvcc"] = (found[1], source)
        case "System Info", "CPU Memory" if size is not None:
            report.values["hardware.host_memory_bytes"] = (round(float(size[1]) * GIB), source)
        case "System Info", "GPU Count" if (count := parse_count(value)) is not None:
            report.values["gpu count"] = (count, source)
        case "System Info", _ if device is not None and device[2] == "Type" and is_device_name(value):
            report.devices.append(Device(value))
            report.devices_source = report.devices_source or source
        case "System Info", _ if device is not None and size is not None and report.devices:
            report.devices[-1] = report.devices[-1]._replace(memory_bytes=round(float(size[1]) * GIB))
        case _:
            return False
    return True
