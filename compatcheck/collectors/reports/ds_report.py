"""DeepSpeed's ``ds_report``: releases and CUDA versions behind rows of dots, and the size of ``/dev/shm``.

What it prints as "deepspeed wheel compiled w." is how the wheel was built, not what is installed, and is left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.report import CUDA, PastedReport, find_fields, is_version, open_report, place
from compatcheck.core.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.report import Field
    from compatcheck.collectors.reports.text import Part

_LABELS = (
    "torch install path",
    "torch version",
    "torch cuda version",
    "torch hip version",
    "nvcc version",
    "deepspeed install path",
    "deepspeed info",
    "deepspeed wheel compiled w.",
    "torch_npu install path",
    "torch_npu version",
    "ascend_cann version",
    "shared memory (/dev/shm) size",
)
_LABEL = re.compile(
    r"(?<![A-Za-z0-9_.])(" + "|".join(map(re.escape, _LABELS)) + r") {0,3}(?:\.{3,40}|…{1,14}\.{0,2}) {0,3}"
)
_SIZE = re.compile(r"(\d{1,6}\.\d\d) (B|KB|MB|GB|TB)(?= |$)")
_UNITS = {"B": 1, "KB": KIB, "MB": MIB, "GB": GIB, "TB": 1024 * GIB}
"""It divides by 1024 (``human_readable_size`` in deepspeed/env_report.py)."""
_PYTHON = re.compile(r"/python(3\.\d{1,2})/(?:site|dist)-packages/")
_GAP = 3_000


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the reports of a part."""
    current: list[Field] = []
    for entry in find_fields(part.text, _LABEL):
        far = current and entry.start - current[-1].end > _GAP
        if far or entry.label in {known.label for known in current}:
            yield _report(current, part, path)
            current = []
        current.append(entry)
    if current:
        yield _report(current, part, path)


def _report(fields: list[Field], part: Part, path: str) -> PastedReport:  # noqa: C901, PLR0912 (one case a label)
    report = open_report("ds_report", part, path, fields[0].start, fields[-1].end)
    for entry in fields:
        source = place(part, entry.start, path, entry.label)
        value = entry.value
        match entry.label:
            case "torch install path" | "deepspeed install path":
                found = _PYTHON.search(value)
                if found is not None:
                    report.values.setdefault("python", (found[1], source))
            case "torch version":
                report.add_package("torch", value, source)
            case "deepspeed info":
                version, comma, _ = value.partition(", ")
                if comma:
                    report.add_package("deepspeed", version, source)
            case "torch cuda version":
                if CUDA.fullmatch(value):
                    report.values["runtime.torch_cuda"] = (value, source)
                elif value == "None":
                    report.values["runtime.torch_cuda"] = (None, source)
            case "torch hip version":
                if is_version(value.partition("-")[0]):
                    report.values["runtime.torch_build"] = ("rocm", source)
            case "nvcc version":
                if CUDA.fullmatch(value):
                    report.values["runtime.nvcc"] = (value, source)
                elif "[FAIL]" in value:
                    report.notes.append(f"{source}: no nvcc was found")
            case "torch_npu version":
                report.add_package("torch-npu", value, source)
            case "shared memory (/dev/shm) size":
                size = _SIZE.match(value)
                if size is not None:
                    report.values["hardware.shm_bytes"] = (round(float(size[1]) * _UNITS[size[2]]), source)
            case _:
                pass
    return report
