"""Whose configuration a file is that composes from others, of whose keys it may have none itself (``defaults`` of Hydra)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.frameworks.beside import find_beside
from compatcheck.frameworks.launch.hydra import name_defaults
from compatcheck.frameworks.registry import configuration_readers
from compatcheck.frameworks.text import parse_configuration, read_text

if TYPE_CHECKING:
    from compatcheck.core.files import Files

_MOST_FILES = 16
"""Files that one composes from of which the keys are looked at."""


def find_composing(file: str, files: Files) -> str | None:
    """Return the reader that knows a file by its keys and those of the files beside it that it composes from."""
    keys: dict[str, Any] = {}
    pending, seen = [file], set[str]()
    while pending and len(seen) < _MOST_FILES:
        path = pending.pop()
        if path in seen or not files.is_file(path):
            continue
        seen.add(path)
        with suppress(InputError):  # whoever reads it says so
            data = parse_configuration(read_text(path, files), path)
            if isinstance(data, dict):
                keys = {**data, **keys}
                pending += (find_beside(path, f"{name}.yaml", files) for name in name_defaults(data))
    readers = (one for one in configuration_readers(shares_keys=False) if one.recognise(keys))
    return next((one.READER for one in readers), None)
