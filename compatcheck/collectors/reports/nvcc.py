"""``nvcc --version``: the release of the CUDA compiler, which need not be that of torch's CUDA."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.report import PastedReport, open_report, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_RELEASE = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d{1,2}), V(\d{1,2}\.\d{1,2}\.\d{1,4})(?=\s)")


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the reports of a part."""
    for found in _RELEASE.finditer(part.text):
        if not found[2].startswith(found[1] + "."):
            continue
        report = open_report("nvcc", part, path, found.start(), found.end())
        report.source = place(part, found.start(), path, "release")
        report.values["runtime.nvcc"] = (found[2], report.source)
        yield report
