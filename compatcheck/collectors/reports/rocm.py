"""``rocm-smi`` and ``rocminfo``: the names of AMD's devices; what else they print decides no fact yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.collect_env import is_device_name
from compatcheck.collectors.reports.report import Device, PastedReport, open_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_SERIES = re.compile(r"GPU\[(\d{1,2})\] {0,8}: Card (?:series|Series): {1,8}([^\n]{3,60})\n")
_PROCESSOR = re.compile(r"\n {0,6}Marketing Name: {1,30}([^\n]{3,60}?) {0,20}\n")
_TYPE = re.compile(r"Device Type: {1,30}(CPU|GPU)\b")


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the reports of a part."""
    for devices, start, end in (_read_series(part.text), _read_processors(part.text)):
        if devices:
            report = open_report("rocm", part, path, start, end)
            report.devices, report.devices_source = devices, report.source
            yield report


def _read_series(text: str) -> tuple[list[Device], int, int]:
    """Read ``rocm-smi --showproductname``."""
    found = [entry for entry in _SERIES.finditer(text) if is_device_name(entry[2].strip())]
    return [Device(entry[2].strip()) for entry in found], *_span(found)


def _read_processors(text: str) -> tuple[list[Device], int, int]:
    """Read ``rocminfo``: each processor has a marketing name and, some lines below, what it is."""
    processors = list(_PROCESSOR.finditer(text))
    found = []
    for index, processor in enumerate(processors):
        follows = processors[index + 1].start() if index + 1 < len(processors) else len(text)
        kind = _TYPE.search(text, processor.end(), min(follows, processor.end() + 3000))
        if kind is not None and kind[1] == "GPU" and is_device_name(processor[1]):
            found.append(processor)
    return [Device(processor[1].strip()) for processor in found], *_span(found)


def _span(found: list[re.Match[str]]) -> tuple[int, int]:
    return (found[0].start(), found[-1].end()) if found else (0, 0)
