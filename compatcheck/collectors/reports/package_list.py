"""Packages as people write them by hand or copy from pip: ``torch==2.5.1``, pip's columns, "torch: 2.5.1".

Only whole lines count, never a word in a sentence, and a name without ``==`` only when it is one that is known here: prose is
full of releases that somebody does not have.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.report import DRIVER, PastedReport, is_version, open_report, place
from compatcheck.core.data_file import read_data
from compatcheck.core.markers import canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

KNOWN: dict[str, str] = read_data(__file__, "package_list")["known"]
"""What people write, lower case → the distribution."""
_KNOWN_NAMES = frozenset(KNOWN.values())
_BULLET = r" {0,12}(?:(?:[-*+•]|\d{1,2}[.)]) {0,3})?"
_PIN = re.compile(_BULLET + r"([A-Za-z0-9][\w.-]{0,80})(?:\[[\w, -]{0,60}\])? ?== ?([0-9][\w.+!-]{0,80}) {0,8}(?:\\)?")
_STATED = re.compile(
    _BULLET + r"(" + "|".join(sorted(map(re.escape, KNOWN), key=len, reverse=True)) + r")"
    r"(?:(?: {1,2}version| {1,2}ver\.?)? {0,8}(?:[:=|]|is) {0,8}| {1,2}version {1,2}| {1,2})"
    r"v?([0-9][\w.+!-]{0,80}?)[.,;|]? {0,8}",
    re.IGNORECASE,
)
_PYTHON = re.compile(
    _BULLET + r"python(?: version)? {0,8}[:=|]? {0,8}v?(3\.\d{1,2}\.\d{1,2})[.,;|]? {0,8}", re.IGNORECASE
)
_DRIVER_LINE = re.compile(
    _BULLET + r"(?:nvidia )?driver(?: version)? {0,8}[:=|]? {0,8}v?(" + DRIVER.pattern + r")[.,;|]? {0,8}",
    re.IGNORECASE,
)
_NAME_LINE = re.compile(r" {0,8}Name: ([A-Za-z0-9][\w.-]{0,80}) {0,8}")
_VERSION_LINE = re.compile(r" {0,8}Version: ([0-9][\w.+!-]{0,80}) {0,8}")
"""``pip show``."""
_SATISFIED = re.compile(
    r" {0,8}Requirement already satisfied: ([A-Za-z0-9][\w.-]{0,80})(?:[\[<>=!~; ].{0,160})? in .{1,200}"
    r" \(([0-9][\w.+!-]{0,80})\)"
)
_INSTALLED = "Successfully installed "
"""What ``pip install`` says of what was there, and before what it has put there."""
_TABLE_ROW = re.compile(r" {0,8}\|?(?P<name>[^|]{2,60})\|(?P<version>[^|]{3,80})\|.{0,200}")
"""A row of a Markdown table."""
_COLUMNS = re.compile(
    r"Package {1,80}Version(?: {1,80}(?:Editable project location|Location|Build|Latest|Installer).{0,80})?"
)
_CONDA_COLUMNS = re.compile(r"#? {0,4}Name {1,80}Version {1,80}Build(?: {1,80}Channel)?")
_RULE = re.compile(r"-{2,80} {1,4}-{2,80}(?: {1,4}-{2,80})?|─{2,200}")
_ROW = re.compile(
    r"([A-Za-z0-9_][\w.-]{0,80}) {1,80}([0-9][\w.+!-]{0,80})(?: {1,80}(\S{1,200})(?: {1,80}(\S{1,200}))?)?"
)
_WIDE_ROW = re.compile(r"[A-Za-z0-9_][\w.-]{0,80} {2,80}[0-9][\w.+!-]{0,80}(?: {2,80}\S{1,200}(?: {2,80}\S{1,200})?)?")
_RUN = 5
"""Rows one below the other that are pip's or conda's columns without their heading, when they are in order."""
_LONGEST, _LONGEST_INSTALLED = 300, 20_000
_GAP = 12
"""Lines between two of one list at most; more begin another."""


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the lists of a part: neighbouring lines are one."""
    report: PastedReport | None = None
    last = 0
    in_columns = False
    lines = _lines(part)
    rows = _find_rows(lines)
    named = ""
    for index, start in enumerate(part.starts):
        line = lines[index]
        if line is None:
            in_columns = False
            continue
        end = start + len(line) + 1
        if _COLUMNS.fullmatch(line.strip()) or _CONDA_COLUMNS.fullmatch(line.strip()):
            in_columns = True
            continue
        if in_columns and (not line.strip() or _RULE.fullmatch(line.strip())):
            in_columns = bool(line.strip())
            continue
        version = _VERSION_LINE.fullmatch(line) if named else None
        stated = (canonical_name(named), version[1]) if version is not None else None
        shown = _NAME_LINE.fullmatch(line) if stated is None else None
        named = shown[1] if shown is not None else ""
        stated = stated or _read_line(line, in_columns=in_columns or index in rows)
        statements = _read_installed(line) if stated is None else [stated]
        if not statements:
            in_columns = in_columns and _ROW.fullmatch(line.strip()) is not None  # conda's libraries are rows, too
            continue
        if report is None or index - last > _GAP:
            if report is not None and _counts(report):
                yield report
            report = open_report("list", part, path, start, end)
        last = index
        report.end = end
        for statement in statements:
            _take(report, statement, part, path, start)
    if report is not None and _counts(report):
        yield report


def _counts(report: PastedReport) -> bool:
    """Tell whether lines are a list: several, or one of something known."""
    return (
        len(report.packages) + len(report.values) > 1
        or bool(report.values)
        or not _KNOWN_NAMES.isdisjoint(report.packages)
    )


def _read_installed(line: str) -> list[tuple[str, str]]:
    """Return what a line of pip says it has installed: ``Successfully installed accelerate-1.2.0 torch-2.6.0``."""
    if not line.startswith(_INSTALLED):
        return []
    words = (word.rpartition("-") for word in line.removeprefix(_INSTALLED).split())
    return [(canonical_name(name), version) for name, _, version in words if name and is_version(version)]


def states_release(line: str) -> bool:
    """Tell whether a line states a release in words."""
    return len(line) <= _LONGEST and _read_line(line.rstrip(), in_columns=False) is not None


def _read_line(line: str, *, in_columns: bool) -> tuple[str, str] | None:
    """Return what a line states and its value, or None when it is no line of a list."""
    if in_columns:
        row = _ROW.fullmatch(line.strip())
        if row is None or not is_version(row[2]):
            return None
        # conda lists libraries, too, and builds of Python packages under other names
        build = row[3] or ""
        of_conda = not build.startswith("pypi") and (row[4] is not None or _BUILD.search(build) is not None)
        name = canonical_name(row[1])
        return None if of_conda and name not in _CONDA else (_CONDA.get(name, name), row[2])
    satisfied = _SATISFIED.fullmatch(line) if "satisfied" in line else None
    if satisfied is not None:
        return (canonical_name(satisfied[1]), satisfied[2]) if is_version(satisfied[2]) else None
    row = _TABLE_ROW.fullmatch(line) if "|" in line else None
    if row is not None:
        return _read_line(f"{row['name'].strip(' *')}: {row['version'].strip(' *v')}", in_columns=False)
    pin = _PIN.fullmatch(line)
    if pin is not None:
        name = canonical_name(pin[1])
        return (name, pin[2]) if is_version(pin[2]) and name not in {"python", "cuda", "cudnn"} else None
    stated = _STATED.fullmatch(line)
    if stated is not None and "." in stated[2] and is_version(stated[2]):
        return KNOWN[" ".join(stated[1].lower().split())], stated[2]
    for pattern, name in ((_PYTHON, "python"), (_DRIVER_LINE, "driver")):
        found = pattern.fullmatch(line)
        if found is not None:
            return f"({name})", found[1]
    return None


_BUILD = re.compile(r"^(?:py\d|h[0-9a-f]{6}|cuda|\d{1,3}$|\w{1,40}_\d{1,4}$)")
_CONDA = {name: name for name in ("torchvision", "torchaudio", "transformers", "accelerate", "deepspeed", "peft")} | {
    "pytorch": "torch",
    "torchtriton": "triton",
}
"""conda's packages that are a distribution of Python → its name."""


def _lines(part: Part) -> list[str | None]:
    """Return the lines of a part; None for one that is too long for a list, or may be cut off."""
    lines: list[str | None] = []
    for index, start in enumerate(part.starts):
        end = part.starts[index + 1] if index + 1 < len(part.starts) else len(part.text)
        longest = _LONGEST_INSTALLED if part.text.startswith(_INSTALLED, start) else _LONGEST
        whole = end - start <= longest and part.text.endswith("\n", start, end)
        lines.append(part.text[start : end - 1].rstrip() if whole else None)
    return lines


def _find_rows(lines: list[str | None]) -> set[int]:
    """Find the lines of columns that have lost their heading: several one below the other, in the order of the alphabet."""
    found: set[int] = set()
    run: list[int] = []
    for index, line in enumerate([*lines, None]):
        if line is not None and _WIDE_ROW.fullmatch(line.strip()):
            run.append(index)
            continue
        names = [canonical_name((lines[position] or "").split()[0]) for position in run]
        ordered = sum(first <= second for first, second in pairwise(names))
        if len(run) >= _RUN and ordered >= 0.8 * (len(run) - 1):
            found.update(run)
        run = []
    return found


def _take(report: PastedReport, stated: tuple[str, str], part: Part, path: str, position: int) -> None:
    name, value = stated
    source = place(part, position, path, name.strip("()"))
    if name.startswith("("):
        key = name.strip("()")
        known = report.values.get(key)
        if known is not None and known[0] != value:
            report.notes.append(f"{source}: {key} {value}, and {known[0]} at {known[1]}: neither is taken")
            report.torn.add(key)
        report.values.setdefault(key, (value, source))
        return
    known_package = report.packages.get(name)
    if known_package is not None and known_package.version != value:
        report.torn.add(name)
        report.notes.append(
            f"{source}: {name} {value}, and {known_package.version} at {known_package.source}: neither is taken"
        )
    report.add_package(name, value, source)
