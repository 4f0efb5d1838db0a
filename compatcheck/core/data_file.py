"""Files of this package: lists of names and key tables beside the modules that use them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def read_data(module: str, name: str) -> Any:  # noqa: ANN401 (JSON)
    """Read the table ``NAME.json`` of a module, given by its ``__file__``."""
    import json  # noqa: PLC0415 (a check of an environment needs words only)

    return json.loads(read_file(_find(module, f"{name}.json")))


def read_words(module: str, name: str) -> tuple[str, ...]:
    """Read the words of ``NAME.txt`` of a module, in order; ``#`` starts a comment."""
    return tuple(word for line in read_text(module, name).splitlines() for word in line.partition("#")[0].split())


def read_text(module: str, name: str) -> str:
    """Read ``NAME.txt`` of a module."""
    return read_file(_find(module, f"{name}.txt")).decode()


def read_file(path: str) -> bytes:
    """Read a file of this package by its path, which may lead into the archive that Python runs (``python -m zipapp``)."""
    loader: Any = __spec__.loader
    archive = getattr(loader, "archive", None)
    if archive is not None:  # known to its loader as the person wrote it: ./x.pyz, ../x.pyz
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(archive))
        path = os.path.join(archive, inside)
    return bytes(loader.get_data(path))


def _find(module: str, name: str) -> str:
    return os.path.join(os.path.dirname(module), "data", name)
