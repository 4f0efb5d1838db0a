"""What one report states, before it is known which others are of the same environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compatcheck.core.environment import Package
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Collection

    from compatcheck.collectors.python.conda_records import CondaPackage
    from compatcheck.collectors.reports.text import Part

_VERSION = re.compile(r"[0-9][0-9A-Za-z]{0,20}(?:[.+_!-][0-9A-Za-z]{1,60}){0,12}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,80}[A-Za-z0-9])?")
DRIVER = re.compile(r"[1-9]\d{2}\.\d{1,3}(?:\.\d{1,3})?")
"""Versions of NVIDIA's drivers: 390.48, 451.67, 550.54.15, 540.4.0 (Jetson); macOS counts otherwise."""
CUDA = re.compile(r"(?:[5-9]|1\d|2\d)\.\d{1,2}")
ABSENT = "absent"
"""Specifier of a package that is stated not to be there (`compatcheck.resolution.scope`)."""
_TRAILING = " \n|\\\"',;<>"


class Device(NamedTuple):
    """One device that a report lists."""

    name: str
    memory_bytes: int | None = None
    compute_capability: float | None = None
    cut: bool = False
    """Whether ``nvidia-smi`` cut the name off: ``NVIDIA A100-SXM...``."""
    mig: bool = False
    """Whether it is a MIG instance."""
    split: bool = False
    """Whether it is split into MIG instances, which are then the devices of a job."""


@dataclass(slots=True, kw_only=True)
class PastedReport:
    """One report as its reader fills it."""

    kind: str
    """Name of the tool: ``collect_env``, ``nvidia-smi``."""
    source: Source
    """Where it begins."""
    writer: str = ""
    depth: int = 0
    start: int = 0
    end: int = 0
    """Positions in its part."""
    values: dict[str, tuple[Any, Source]] = field(default_factory=dict)
    """``python``, ``driver`` and vocabulary facts; None is what the report says there is none of."""
    packages: dict[str, Package] = field(default_factory=dict)
    disowned: bool = False
    """Whether its list of packages names another torch than the one that was imported."""
    conda: dict[str, CondaPackage] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    devices_source: Source | None = None
    whole: bool = False
    """Whether the list of devices was seen to end, so that their number is known."""
    others: bool = False
    """Whether the devices are but one of those there may be, as ``torch.cuda.get_device_name()`` gives."""
    torn: set[str] = field(default_factory=set)
    """What a list written by hand states twice and differently."""
    variables: dict[str, str] = field(default_factory=dict)
    variables_source: Source | None = None
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    accelerate: dict[str, Any] | None = None
    """The configuration of accelerate that the report prints."""
    accelerate_source: Source | None = None

    @property
    def states_something(self) -> bool:
        """Tell whether anything was read."""
        return bool(self.values or self.packages or self.conda or self.devices or self.variables or self.skipped)

    def add_package(self, name: str, text: str, source: Source) -> bool:
        """Take a package when both are well formed; return whether it was taken."""
        if _NAME.fullmatch(name) is None or not is_version(text):
            return False
        name = canonical_name(name)
        known = self.packages.get(name)
        if known is None or (
            known.version is not None and is_same(known.version, text) and len(text) > len(known.version)
        ):
            self.packages[name] = Package(name, text, source)
        return True

    def add_absent(self, name: str, source: Source) -> None:
        """Take that a package is not installed."""
        self.packages.setdefault(name, Package(name, None, source, ABSENT))


def open_report(kind: str, part: Part, path: str, start: int, end: int) -> PastedReport:
    """Begin a report of one tool that reaches from one position of a part to another."""
    source = place(part, start, path)
    return PastedReport(kind=kind, source=source, writer=part.writer, depth=part.depth, start=start, end=end)


def is_version(text: str) -> bool:
    """Tell whether a text is a version, and not the beginning of one that was cut off."""
    return len(text) <= 100 and _VERSION.fullmatch(text) is not None and parse_version(text) is not None


def is_same(first: str, second: str) -> bool:
    """Tell whether two versions can be one: equal, or equal up to a local label that only one of them has."""
    return first == second or (
        first.partition("+")[0] == second.partition("+")[0] and ("+" not in first or "+" not in second)
    )


def is_prefix(first: str, second: str) -> bool:
    """Tell whether two versions can be one of which one was written shorter: 12.1 and 12.1.105."""
    return first == second or (first + ".").startswith(second + ".") or (second + ".").startswith(first + ".")


def tidy(value: str) -> str:
    """Remove what a table, a quotation or a list leaves around a value."""
    return value.strip(_TRAILING)


def place(part: Part, position: int, path: str, key: str | None = None) -> Source:
    """Return the place of a position."""
    return Source(path, key, part.line_at(position))


class Field(NamedTuple):
    """One label of a report with what stands behind it."""

    label: str
    value: str
    """Up to the end of its line, or to the next label where line breaks were lost; empty where the text may be cut off in it."""
    rest: str
    """Up to the next label, whatever lines that takes; a list of devices has several."""
    start: int
    end: int
    """Where the value ends."""
    cut: bool
    """Whether the text ends behind it, so that more may have been there."""
    following: str
    """The next label; empty where there is none."""


def find_fields(text: str, labels: re.Pattern[str], lists: Collection[str] = ()) -> list[Field]:
    """Find the labels of a report and their values."""
    found = list(labels.finditer(text))
    names = [" ".join(next(filter(None, match.groups())).split()) for match in found]
    fields = []
    for index, match in enumerate(found):
        begin = match.end()
        is_last = index + 1 == len(found)
        following = len(text) if is_last else found[index + 1].start()
        line_end = text.find("\n", begin, following)
        end = line_end if line_end >= 0 else following
        cut = end == len(text)
        value = "" if cut else tidy(text[begin : min(end, begin + _LONGEST)])
        rest = text[begin : min(following, begin + _LONGEST_LIST)] if names[index].lower() in lists else ""
        fields.append(Field(names[index], value, rest, match.start(), end, cut, "" if is_last else names[index + 1]))
    return fields


_LONGEST, _LONGEST_LIST = 600, 20_000
