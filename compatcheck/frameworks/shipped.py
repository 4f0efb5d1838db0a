"""Configuration files that a program ships and its users name: assumed where a run names one that is not here."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.data_file import read_data
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.registry import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Mapping


class ShippedFile(NamedTuple):
    """A file of a program."""

    program: str
    """Label of the program."""
    content: Mapping[str, Any]
    """What of it decides about memory; ``{{ … }}`` is a value that changed between releases."""
    built_in: bool
    """Whether it was named by a word that only the program itself resolves, so that nothing else can be meant."""


def find_shipped(kind: str, name: str) -> ShippedFile | None:
    """Find the file that a program ships under the end of a path, folder included, or under a word of its own.

    Args:
        kind: of the reference, which tells the reader of the file.
        name: as a configuration or a command names it.
    """
    parts = name.replace("\\", "/").split("/")
    found = shipped_files().get((kind, "/".join(parts[-2:])))
    return None if found is None else found._replace(built_in=len(parts) == 1)


@cache
def shipped_files() -> dict[tuple[str, str], ShippedFile]:
    """Return all of them by kind of reference and name."""
    return {
        (entry["kind"], name): ShippedFile(folder.configuration.LABEL, entry["content"], built_in=False)
        for folder in FOLDERS
        if folder.ships
        for entry in read_data(os.path.join(os.path.dirname(__file__), folder.name, "configuration.py"), "shipped")
        for name in entry["names"]
    }
