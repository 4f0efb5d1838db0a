"""What tools print that is known here and not read: that it is there is said, with what to paste in its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.report import PastedReport, open_report
from compatcheck.core.source import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_COLUMN = r"[a-z_]{2,30}(?:\.[a-z_]{2,30}){0,3}(?: \[[A-Za-z]{1,4}\])?"
_TABLE = "paste the table that nvidia-smi prints, or the list of nvidia-smi -L"
_DECLARE = "declare the devices: --gpu 8xMI300X"
_FORMS = (
    ("nvidia-smi -q", re.compile(r"={4,20} ?NVSMI LOG ?={4,20}"), _TABLE),
    (
        "nvidia-smi --query-gpu",
        re.compile(
            rf"(?:(?<=\n)|(?<=\A))(?=[^\n]{{0,400}}\b(?:name|driver_version|memory\.total)\b)(?:{_COLUMN}, ){{1,40}}{_COLUMN}\n"
        ),
        _TABLE,
    ),
    ("rocm-smi", re.compile(r"ROCm System Management Interface|GPU\[0\] {0,8}: Card [sS]eries"), _DECLARE),
    ("rocminfo", re.compile(r"ROCk module|\n {0,6}Marketing Name: {1,30}\S"), _DECLARE),
)


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Say what of a part is not read."""
    for tool, pattern, hint in _FORMS:
        found = pattern.search(part.text)
        if found is not None:
            report = open_report(tool.partition(" ")[0], part, path, found.start(), found.end())
            report.skipped.append(Skipped(report.source, f"what {tool} prints is not read", hint, fact="hardware.gpu"))
            yield report
