"""What a store holds, in a few lines of text beside it: asking whether there is anything about a release opens no database."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SUFFIX = ".index"
_HEADER = "compatcheck-evidence-index 1 "


def index_path(store: str) -> str:
    """Return the name of the index of a store."""
    return store + SUFFIX


def holds_any(store: str, wanted: Iterable[tuple[str, Mapping[str, str]]]) -> bool | None:
    """Tell whether a store holds a successful measurement of one of these probes under these releases.

    Args:
        store: its file.
        wanted: probes, each with distribution → version; a measurement may name more distributions.

    Returns:
        None when there is no index of this very file, so that only the store itself can tell.
    """
    entries = _read(store)
    if entries is None:
        return None
    asked = [(probe, {f"{name}=={version}" for name, version in versions.items()}) for probe, versions in wanted]
    return any(probe == held and releases <= {*names.split()} for held, names in entries for probe, releases in asked)


def is_current(store: str) -> bool:
    """Tell whether the index is of this very file."""
    return _read(store) is not None


def write_index(store: str, entries: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Write the index of a store anew: probe and releases of every successful measurement.

    Raises:
        OSError: it cannot be written.
    """
    lines = [_HEADER + str(os.stat(store).st_ino), *dict.fromkeys(_line(*entry) for entry in entries)]
    path = index_path(store)
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    os.replace(partial, path)


def extend_index(store: str, entries: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Add the probe and the releases of successful measurements; a line that is there already is harmless.

    Raises:
        OSError: it cannot be written.
    """
    text = "".join(f"{line}\n" for line in dict.fromkeys(_line(*entry) for entry in entries))
    if text:
        with open(index_path(store), "a", encoding="utf-8") as file:
            file.write(text)


def _line(probe: str, versions: Mapping[str, str]) -> str:
    return f"{probe}\t{' '.join(f'{name}=={version}' for name, version in sorted(versions.items()))}"


def _read(store: str) -> list[tuple[str, str]] | None:
    try:
        with open(index_path(store), encoding="utf-8", errors="replace") as file:
            header, *lines = file.read().splitlines()
        if header != _HEADER + str(os.stat(store).st_ino):
            return None
    except (OSError, ValueError):  # ValueError: nothing in it
        return None
    return [(probe, names) for probe, _, names in (line.partition("\t") for line in lines)]
