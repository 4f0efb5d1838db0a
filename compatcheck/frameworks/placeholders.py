"""Values of a configuration that something fills in before the program reads it (``fsdp: ${F}``): what they state is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Gap, Unresolved
from compatcheck.core.errors import InputError
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from compatcheck.frameworks.reader import ConfigurationReader, Reading

_PLACEHOLDER = lazy_compile(r"\$(?:\{(?:(?:oc\.)?env:)?([A-Za-z_]\w*)(?::?[-,][^{}]*)?\}|([A-Z_]\w*))|\{\{[^{}]*\}\}")


def read_filled_in(
    reader: ConfigurationReader,
    data: Mapping[str, Any],
    path: str,
    because: str = "is {value}, which is filled in before the file is read",
) -> Reading:
    """Read a parsed file; what a value that is filled in later would state is unresolved.

    Args:
        reader: of the program that the file is for.
        data: the parsed file.
        path: of the file.
        because: why such a value is not known; ``{value}`` stands for what is written in its place.

    Raises:
        InputError: nothing in the file was understood.
    """
    reading = reader.read(data, path)
    found = [(key, value) for key, value in flatten(data) if _is_filled_in(value, data)]
    if not found or not reading.documents:
        return reading
    first = reading.documents[0]
    silent = {one.key for one in first.statements if one.fact is None and one.key not in reader.TABLE}
    named = {name for _, name, _ in first.references}
    hidden = {key: value for key, value in found if key not in silent and value not in named}
    if not hidden:
        return reading
    try:
        reading = reader.read(_leave_out(data, hidden), path)
    except InputError:
        return reading
    first, *others = reading.documents
    why = {key: because.replace("{value}", str(value)) for key, value in hidden.items()}
    unresolved = [  # of every role: what is said of one model may hold for those that follow it
        Unresolved(meaning.fact, key, why[key]) for key in hidden for meaning in reader.TABLE.get(key, ())
    ]
    gaps = [Gap(first.place(key), why[key], key) for key in hidden if not reader.TABLE.get(key)]
    document = first._replace(unresolved=(*first.unresolved, *unresolved), gaps=(*first.gaps, *gaps))
    return reading._replace(documents=(document, *others))


def _is_filled_in(value: object, data: Mapping[str, Any]) -> bool:
    match = _PLACEHOLDER.fullmatch(value.strip()) if isinstance(value, str) else None
    return match is not None and match[1] not in data


def _leave_out(data: Mapping[str, Any], hidden: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    """Return the data without some leaves, and without the sections that are empty then."""
    kept: dict[str, Any] = {}
    for name, value in data.items():
        key = f"{prefix}{name}"
        inner = _leave_out(value, hidden, f"{key}.") if isinstance(value, Mapping) and value else value
        if key not in hidden and (inner or not isinstance(inner, dict) or inner == value):
            kept[name] = inner
    return kept
