"""``nvidia-smi``: its table in the layouts of every driver, ``-L``, and names alone.

The CUDA version of the table is the newest one that the driver supports (from driver 610 on it is called "CUDA UMD Version",
and the driver's "KMD Version"); it says nothing of an installed toolkit. Long names are cut off in the table. Where a device is
split into MIG instances, these are the devices of a job, with the memory of their own table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.collect_env import is_device_name
from compatcheck.collectors.reports.report import CUDA, DRIVER, Device, PastedReport, open_report, place
from compatcheck.core.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_HEAD = re.compile(
    r"NVIDIA-SMI[ |:]{1,4}([\d.]{3,20})[ |,;\n-]{1,40}(?:Driver|KMD) Version: {0,12}(\w[\w.]{2,18})"
    r"(?:[ |,;\n-]{1,40}CUDA (?:UMD )?Version: {0,12}(\w[\w./]{1,10}))?(?=[\s|,;)])"
)
_NAME = r"[A-Za-z][\w./()-]{0,30}(?: [\w./()-]{1,24}){0,7}?"
_ROW = re.compile(
    r"(?:(?<=\n)|(?<=\|)|(?<=\A)) {0,6}(\d{1,2}) {1,4}("
    + _NAME
    + r") {1,30}(?:On|Off|N/A|TCC|WDDM|MCDM|ERR!)[ |]{1,12}"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d) {1,6}(?:On|Off|N/A)[ |\n]"
)
_MEMORY = re.compile(r"(?<![\w.])(\d{1,7}) ?MiB {0,3}/ {0,8}(\d{1,8}) ?MiB(?!\w)")
_MODE = re.compile(r"(?:\||\n) {0,60}(N/A|Disabled\*?|Enabled\*?) {0,4}(?=\||\n)")
_INSTANCE = re.compile(
    r"(?:(?<=\n)|(?<=\|)) {0,4}(\d{1,2}) {1,5}(\d{1,3})"
    r" {1,5}(\d{1,2}) {1,5}(\d{1,2}) {1,4}\| {0,40}(\d{1,7})MiB {0,3}/ {0,8}(\d{1,8})MiB"
)
_END = re.compile(r"Processes:|MIG devices:|No running processes|No MIG devices found")
_LISTED = re.compile(
    r"(?:(?<=\n)|(?<=\A)|(?<= )) {0,4}GPU {1,3}(\d{1,2}): ([^\n(:]{3,60}?) \(UUID: GPU-[0-9a-fA-FxX*.…-]{1,40}\)?"
)
_NAMED = re.compile(r"(?:(?<=\n)|(?<=\A)) {0,4}GPU {1,3}(\d{1,2}): ([A-Za-z][^\n(:|]{3,60}?) {0,4}(?=\n)")
_LISTED_INSTANCE = re.compile(
    r"MIG {1,3}(\d{1,2}(?:c\.\d{1,2})?g\.(\d{1,3})gb(?:\+\w{1,8})?) {1,8}Device {1,3}\d{1,2}: \(UUID"
)
_KIND = "nvidia-smi"
_NEAR = 6_000
"""Characters of a table between its head and its first device at most, and between two devices."""
_SMALLEST = 128 * MIB
_FIRST_WITH_MIG = 450
"""Driver from which on each device has a line about MIG."""


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the reports of a part."""
    text = part.text
    heads = list(_HEAD.finditer(text))
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        yield _read_table(part, path, head, end)
    if not heads:
        rows = [row for row in _ROW.finditer(text) if _MEMORY.search(text, row.end(), row.end() + 400)]
        if rows:
            report = open_report(_KIND, part, path, rows[0].start(), rows[0].start())
            _take_rows(part, path, report, rows[0].start(), len(text))
            yield report
    listed = list(_read_listing(part, path))
    yield from listed or _read_names(part, path)


def _read_table(part: Part, path: str, head: re.Match[str], end: int) -> PastedReport:
    report = open_report(_KIND, part, path, head.start(), head.end())
    source = place(part, head.start(), path, "Driver Version")
    if DRIVER.fullmatch(head[2]):
        report.values["driver"] = (head[2], source)
    if head[3] is not None and CUDA.fullmatch(head[3]):
        report.values["hardware.driver_cuda"] = (head[3], source._replace(key="CUDA Version"))
    _take_rows(part, path, report, head.end(), min(end, head.end() + 64 * _NEAR))
    return report


def _take_rows(part: Part, path: str, report: PastedReport, begin: int, end: int) -> None:
    """Take the devices of a table, and the MIG instances of the table below it."""
    text = part.text
    closing = _END.search(text, begin, end)
    rows = list(_ROW.finditer(text, begin, closing.start() if closing is not None else end))
    first = rows[0].start() if rows else begin
    driver = report.values.get("driver")
    splits = begin == first or "MIG M." in text[begin:first] or driver is None or int(driver[0][:3]) >= _FIRST_WITH_MIG
    devices: list[Device] = []
    used: list[str] = []
    sound = True
    for index, row in enumerate(rows):
        follows = (
            rows[index + 1].start() if index + 1 < len(rows) else (closing.start() if closing is not None else end)
        )
        device, in_use, complete = _read_row(text, row, follows, splits=splits)
        if int(row[1]) != index and rows[0][1] == "0":
            sound = False
        if device is None or not complete:
            sound = False
            continue
        devices.append(device)
        if in_use is not None:
            used.append(f"{in_use} MiB of GPU {row[1]}")
        report.end = max(report.end, row.end())
    if not devices:
        return
    report.devices_source = place(part, rows[0].start(), path)
    memories = len(_MEMORY.findall(text, first, closing.start() if closing is not None else end))
    report.whole = sound and closing is not None and rows[0][1] == "0" and memories == len(rows)
    if closing is not None:
        report.end = max(report.end, closing.end())
    if any(device.split for device in devices):
        devices, complete = _with_instances(text, devices, closing, end)
        report.whole = report.whole and complete
    report.devices = devices
    if used:
        report.notes.append(f"{report.devices_source}: memory in use when the report was made: {', '.join(used[:16])}")


def _read_row(text: str, row: re.Match[str], follows: int, *, splits: bool) -> tuple[Device | None, str | None, bool]:
    """Read one device: its name, its memory, and whether it is split; the last says whether the row was seen to end."""
    name = row[2].strip()
    cut = name.endswith("..")
    plain = name.rstrip(". ") if cut else name
    if not is_device_name(plain):
        return None, None, False
    memory = _MEMORY.search(text, row.end(), min(follows, row.end() + 500))
    if memory is None:
        return Device(plain, cut=cut), None, False
    size = int(memory[2]) * MIB
    mode = _MODE.search(text, memory.end(), min(follows, memory.end() + 500))
    if splits and mode is None:
        return None, None, False
    split = mode is not None and mode[1].startswith("Enabled")
    return (
        Device(plain, size if size >= _SMALLEST and not split else None, cut=cut, split=split),
        None if int(memory[1]) * 50 < int(memory[2]) else memory[1],
        memory.end() < len(text),
    )


def _with_instances(
    text: str, devices: list[Device], closing: re.Match[str] | None, end: int
) -> tuple[list[Device], bool]:
    """Put the MIG instances in the place of the devices they are of; the last says whether their table was seen to end."""
    if closing is None or closing[0] != "MIG devices:":
        return devices, False
    stop = re.compile(r"Processes:|No MIG devices found").search(text, closing.end(), end)
    seen: dict[tuple[str, str], Device] = {}
    for found in _INSTANCE.finditer(text, closing.end(), stop.start() if stop is not None else end):
        index = int(found[1])
        if index < len(devices):
            name = f"{devices[index].name} MIG"
            # several compute instances share the memory of their GPU instance
            seen.setdefault((found[1], found[2]), Device(name, int(found[6]) * MIB, mig=True))
    whole = [device for device in devices if not device.split]
    if not seen:
        return devices, False
    return [*whole, *seen.values()], stop is not None


def _read_listing(part: Part, path: str) -> Iterator[PastedReport]:
    """Read ``nvidia-smi -L``; how many devices there are is known when something stands behind the last one."""
    report: PastedReport | None = None
    found = list(_LISTED.finditer(part.text))
    for index, entry in enumerate(found):
        number, name = int(entry[1]), entry[2].strip()
        if number == 0 or report is None:
            if report is not None:
                yield report
            report = open_report(_KIND, part, path, entry.start(), entry.start())
            report.devices_source = report.source
        following = found[index + 1].start() if index + 1 < len(found) else min(len(part.text), entry.end() + 1200)
        piece = part.text[entry.end() : following]
        if not is_device_name(name) or entry.end() == len(part.text):
            continue
        instances = list(_LISTED_INSTANCE.finditer(piece))
        report.devices += [Device(f"{name} MIG {one[1]}", int(one[2]) * GIB, mig=True) for one in instances] or [
            Device(name)
        ]
        report.end = entry.end() + (instances[-1].end() if instances else 0)
        behind = [line for line in part.text[report.end : report.end + 400].split("\n")[1:] if line.strip()]
        report.whole = index + 1 == len(found) and bool(behind)
    if report is not None:
        yield report


def _read_names(part: Part, path: str) -> Iterator[PastedReport]:
    """Read lines such as ``GPU 0: NVIDIA A100-SXM4-80GB`` without an identifier, one below the other from 0 on."""
    report: PastedReport | None = None
    for entry in _NAMED.finditer(part.text):
        number, name = int(entry[1]), entry[2].strip()
        goes_on = (
            report is not None and number == len(report.devices) and not part.text[report.end : entry.start()].strip()
        )
        if report is not None and not goes_on:
            yield report
            report = None
        if not is_device_name(name) or (report is None and number != 0):
            continue
        if report is None:
            report = open_report(_KIND, part, path, entry.start(), entry.start())
            report.devices_source = report.source
        report.devices.append(Device(name))
        report.end = entry.end()
        behind = part.text[report.end : report.end + 400].lstrip()
        report.whole = "\n" in behind and not behind.startswith("GPU ")
    if report is not None:
        yield report
