"""Read measurements from files: one as JSON, a sweep as JSON lines that say once what its measurements share.

A file of lines starts with ``{"compatcheck_measurements": 1, "common": {…}}``; every further line is a measurement without
what is in ``common``, whose ``parameters`` and ``versions`` are laid under the line's own. Another such header may follow,
so that files can be joined end to end. `compatcheck.lab.evidence.files` writes them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_utf8
from compatcheck.lab.measurement import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.lab.measurement import Measurement

HEADER = "compatcheck_measurements"
FORMAT = 1
SHARED = ("parameters", "versions")
"""Keys whose entries are shared one by one."""


class OtherFileError(InputError):
    """What a file holds is whole, and something else than measurements."""


def read_measurements(path: str) -> tuple[Measurement, ...]:
    """Read a file: one measurement or a list of them (``.json``), or lines (``.jsonl``).

    Raises:
        OtherFileError: it begins with something else.
        InputError: naming file and line of what is no measurement.
    """
    text = read_utf8(path)
    if path.endswith(".jsonl"):
        return tuple(_read_lines(text, path))
    data = _parse(text, path, 1)
    entries = data if isinstance(data, list) else [data]
    return tuple(_measurement(entry, path, None, first=index == 0) for index, entry in enumerate(entries))


def _read_lines(text: str, path: str) -> Iterator[Measurement]:
    common: Mapping[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        data = _parse(line, path, number)
        if isinstance(data, dict) and HEADER in data:
            common = data.get("common", {})
            if data[HEADER] != FORMAT or not isinstance(common, dict):
                message = f"measurements in format {data[HEADER]!r}"
                hint = f"this release reads format {FORMAT}; a newer one may read it"
                raise InputError(message, source=Source(path, line=number), hint=hint)
            continue
        yield _measurement(_join(common, data), path, number, first=number == 1)


def _join(common: Mapping[str, Any], data: Any) -> Any:  # noqa: ANN401 (JSON)
    if not isinstance(data, dict):
        return data
    joined = {**common, **data}
    for name in SHARED:
        shared, own = common.get(name), data.get(name)
        if isinstance(shared, dict) and isinstance(own, dict):
            joined[name] = {**shared, **own}
    return joined


def _parse(text: str, path: str, line: int) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        found = getattr(error, "lineno", 1) + line - 1
        message = f"is not JSON: {getattr(error, 'msg', 'nested too deeply')}"
        raise InputError(
            message, source=Source(path, line=found), hint="`compatcheck evidence export` writes files of measurements"
        ) from None


def _measurement(data: Any, path: str, line: int | None, *, first: bool) -> Measurement:  # noqa: ANN401 (JSON)
    try:
        return from_json(data)
    except ValueError as error:
        message = f"is no measurement: {error}"
        is_other = first and not (isinstance(data, dict) and "probe" in data)
        raise (OtherFileError if is_other else InputError)(
            message, source=Source(path, line=line), hint="`compatcheck evidence export` writes files of measurements"
        ) from None
