"""Lists of names and key tables in the folder ``data`` beside the module that uses them: JSON or plain text."""

import os
from typing import Any


def read_data(module: str, name: str) -> Any:  # noqa: ANN401 (JSON)
    """Read the table ``NAME.json`` of a module, given by its ``__file__``."""
    import json  # noqa: PLC0415 (a check of an environment needs words only)

    with open(_find(module, f"{name}.json"), encoding="utf-8") as stream:
        return json.load(stream)


def read_words(module: str, name: str) -> tuple[str, ...]:
    """Read the words of ``NAME.txt`` of a module, in order; ``#`` starts a comment."""
    return tuple(word for line in read_text(module, name).splitlines() for word in line.partition("#")[0].split())


def read_text(module: str, name: str) -> str:
    """Read ``NAME.txt`` of a module."""
    with open(_find(module, f"{name}.txt"), encoding="utf-8") as stream:
        return stream.read()


def _find(module: str, name: str) -> str:
    return os.path.join(os.path.dirname(module), "data", name)
