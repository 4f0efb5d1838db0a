"""The banner that Unsloth prints when it patches a model: releases, the device and what torch was built for.

Its "CUDA" is the compute capability of the device, its "CUDA Toolkit" is ``torch.version.cuda`` (unsloth/models/llama.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.collect_env import is_device_name
from compatcheck.collectors.reports.report import CUDA, Device, PastedReport, open_report, place
from compatcheck.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_VERSION = r"(\d[\w+]{0,20}(?:\.[\w+]{1,20}){0,6}?)"
_BANNER = re.compile(
    r"=\s{1,3}Unsloth:? (?:(\d{4}(?:\.\d{1,2}){1,3}): Fast|Fast [^\n.]{1,60} release (\d{4}(?:\.\d{1,2}){1,3})(?=\s))"
)
_PACKAGES = (
    ("transformers", re.compile(rf"\bTransformers ?[:=] ?{_VERSION}\.(?=\s|\\n)")),
    ("vllm", re.compile(rf"\bvLLM ?[:=] ?{_VERSION}\.(?=\s|\\n)")),
    ("torch", re.compile(rf"\b(?:Py)?[Tt]orch ?[:=] ?{_VERSION}\.(?=\s|\\n)")),
    ("triton", re.compile(rf"\bTriton ?[:=] ?{_VERSION}\.?(?=\s|\\n)")),
    ("xformers", re.compile(rf"\bXformers ?= ?{_VERSION}\.(?=\s|\\n)")),
)
_DEVICE = re.compile(
    r"\|\s{2,8}(?:GPU: )?([^\n|]{3,60}?)\. (?:Num GPUs = (\d{1,2})\. )?Max memory: (\d{1,4}(?:\.\d{1,3})?) GB\."
)
_CAPABILITY = re.compile(r"\bCUDA ?[:=] ?(\d{1,2}\.\d)\.(?=\s|\\n)")
_TOOLKIT = re.compile(r"\bCUDA Toolkit ?[:=] ?(\d{1,2}\.\d{1,2})\.(?=\s|\\n)")
_LENGTH = 900
"""Characters of a banner at most."""


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the banners of a part."""
    banners = list(_BANNER.finditer(part.text))
    for index, banner in enumerate(banners):
        follows = banners[index + 1].start() if index + 1 < len(banners) else len(part.text)
        yield _report(part, path, banner, min(follows, banner.start() + _LENGTH))


def _report(part: Part, path: str, banner: re.Match[str], end: int) -> PastedReport:
    report = open_report("Unsloth", part, path, banner.start(), banner.end())
    report.add_package("unsloth", banner[1] or banner[2], place(part, banner.start(), path, "Unsloth"))
    for name, pattern in _PACKAGES:
        found = pattern.search(part.text, banner.start(), end)
        if found is not None:
            report.add_package(name, found[1], place(part, found.start(), path, name))
            report.end = max(report.end, found.end())
    toolkit = _TOOLKIT.search(part.text, banner.start(), end)
    if toolkit is not None and CUDA.fullmatch(toolkit[1]):
        report.values["runtime.torch_cuda"] = (toolkit[1], place(part, toolkit.start(), path, "CUDA Toolkit"))
    device = _DEVICE.search(part.text, banner.start(), end)
    if device is not None and is_device_name(device[1]):
        capability = _CAPABILITY.search(part.text, banner.start(), end)
        found_device = Device(device[1], round(float(device[3]) * GIB), float(capability[1]) if capability else None)
        report.devices = [found_device] * int(device[2] or 1)
        report.devices_source = place(part, device.start(), path)
        report.whole, report.others = device[2] is not None, device[2] is None
        report.end = max(report.end, device.end())
    return report
