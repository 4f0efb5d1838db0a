"""Measurements in files: one as JSON, a sweep as JSON lines that say once what its measurements share.

A file of lines starts with ``{"compatcheck_measurements": 1, "common": {…}}``; every further line is a measurement without
what is in ``common``, whose ``parameters`` and ``versions`` are laid under the line's own. Another such header may follow,
so that files can be joined end to end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.programs import LED_ASTRAY, is_led_astray
from compatcheck.core.source import Source
from compatcheck.core.versions import parse_version
from compatcheck.lab.measurement import UNKNOWN, to_json
from compatcheck.lab.measurement_files import FORMAT, HEADER, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement

SUFFIXES = (".json", ".jsonl")
_BACKGROUND = frozenset({"python", "torch"})
"""Packages that a file is not named after when there are others."""


def write_measurements(path: str, measurements: Iterable[Measurement]) -> None:
    """Write a file, in an order that does not depend on when they were measured.

    Args:
        path: ends in ``.json`` (one measurement is written as such, several as a list) or ``.jsonl``.
        measurements: what to write.

    Raises:
        UsageError: another ending, or the file cannot be written.
    """
    ordered = sorted(measurements, key=_order)
    if path.endswith(".jsonl"):
        text = "".join(_lines(ordered))
    elif path.endswith(".json"):
        rows = [to_json(measurement) for measurement in ordered]
        # A list has a line for each, so that a change of one shows as such.
        text = (
            json.dumps(rows[0], indent=1, ensure_ascii=False) + "\n"
            if len(rows) == 1
            else "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
        )
    else:
        message = f"{path} ends neither in .json nor in .jsonl"
        raise UsageError(message, hint="one measurement reads well as .json; many are small as .jsonl")
    write_whole(path, text)


def write_whole(path: str, text: str) -> None:
    """Write a file with its folders, whole or not at all.

    Raises:
        UsageError: it cannot be written, or a link of a checkout leads it elsewhere.
    """
    if is_led_astray(path):
        raise UsageError(f"{path} is not written: {LED_ASTRAY}", hint="name another place")
    temporary = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(temporary, "x", encoding="utf-8") as file:  # through no link that waits there
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        message = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(message, hint="name a place that may be written to") from None


def append_measurement(path: str, measurement: Measurement) -> None:
    """Add one measurement to a file of lines, so that what is measured is kept whatever happens next.

    Args:
        path: ends in ``.jsonl``; the file is made when there is none.
        measurement: what to add.

    Raises:
        UsageError: another ending, or the file cannot be written.
    """
    if not path.endswith(".jsonl"):
        message = f"{path} does not end in .jsonl"
        raise UsageError(message, hint="measurements are added line by line")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            if not file.tell():
                file.write(_compact({HEADER: FORMAT, "common": {}}))
            file.write(_compact(to_json(measurement)))
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(message, hint="name a place that may be written to") from None


def _lines(measurements: Sequence[Measurement]) -> Iterator[str]:
    rows = [to_json(measurement) for measurement in measurements]
    if not rows:
        return
    common = {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}
    for name in SHARED:
        first = rows[0].get(name, {})
        common[name] = {
            key: value for key, value in first.items() if all(_holds(row.get(name, {}), key, value) for row in rows)
        }
    yield _compact({HEADER: FORMAT, "common": common})
    for row in rows:
        own = {name: value for name, value in row.items() if name not in common}
        for name in SHARED:
            own[name] = {key: value for key, value in row.get(name, {}).items() if key not in common[name]}
        yield _compact({name: value for name, value in own.items() if value not in ({}, [])})


def _holds(values: Mapping[str, Any], key: str, value: object) -> bool:
    """Tell whether a row has exactly this entry; True is not 1 here."""
    return key in values and values[key] == value and type(values[key]) is type(value)


def _compact(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n"


def _order(measurement: Measurement) -> tuple[Any, ...]:
    versions = [(name, _version_order(version)) for name, version in sorted(measurement.versions.items())]
    parameters = json.dumps(measurement.parameters, sort_keys=True, default=dict)
    return measurement.probe, parameters, versions, measurement.backend, measurement.accounting, measurement.time or ""


def _version_order(text: str) -> tuple[int, Any]:
    version = parse_version(text)
    return (0, text) if version is None else (1, version)


def export_measurements(
    directory: str, measurements: Iterable[Measurement], *, slug: str | None = None, overwrite: bool = False
) -> tuple[str, ...]:
    """Write ``directory/<probe>/<slug>.json``, or ``.jsonl`` for several measurements of a probe.

    Args:
        directory: as ``fixtures/measurements``.
        measurements: what to write.
        slug: name of the files; by default releases and back end, or those of the first and the last.
        overwrite: whether a file of that name may be replaced.

    Returns:
        The paths, one for each probe.

    Raises:
        UsageError: a file is there already or cannot be written.
    """
    probes: dict[str, list[Measurement]] = {}
    for measurement in sorted(measurements, key=_order):
        probes.setdefault(measurement.probe, []).append(measurement)
    targets = {
        os.path.join(
            directory, _plain(probe), (_plain(slug) if slug else name_file(chosen)) + SUFFIXES[len(chosen) > 1]
        ): chosen
        for probe, chosen in probes.items()
    }
    for path in targets:
        if os.path.exists(path) and not overwrite:
            message = f"{path} is there already"
            raise UsageError(message, hint="--overwrite replaces it, --name writes another")
    for path, chosen in targets.items():
        write_measurements(path, chosen)
    return tuple(targets)


def name_file(measurements: Sequence[Measurement]) -> str:
    """Name a file after the releases in it: ``deepspeed-0.16.7-cpu``, ``deepspeed-0.15.4-0.19.8-cpu``."""
    names = sorted({name for measurement in measurements for name in measurement.versions})
    named = [name for name in names if name not in _BACKGROUND] or [name for name in names if name == "torch"]
    releases: list[str] = []
    for name in named:
        found = {measurement.versions[name] for measurement in measurements if name in measurement.versions}
        ordered = sorted(found, key=_version_order)
        # What varies names the file; what does not is in it.
        if len(ordered) > 1 or len(measurements) == 1 or len(named) == 1:
            releases.append("-".join([name, *dict.fromkeys((ordered[0], ordered[-1]))]))
    backends = sorted({measurement.backend for measurement in measurements})
    return _plain("-".join([*releases, *backends])) or UNKNOWN


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")


def measurement_files(path: str) -> list[str]:
    """Return the files below a directory that may hold measurements, sorted; a file is returned as it is.

    Raises:
        InputError: there is no such file or directory.
    """
    if not os.path.exists(path):
        message = "no such file or directory"
        raise InputError(message, source=Source(path), hint="check the path")
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIXES)]
    return found
