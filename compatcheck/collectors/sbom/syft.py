"""What ``syft -o json`` writes: artifacts with the files they were found in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.collectors.sbom.components import Listing
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_tables
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from compatcheck.core.environment import Environment


def read_syft_json(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a file of syft's own format."""
    file = read_json(path, files)
    artifacts = as_table(file.data).get("artifacts")
    if not isinstance(artifacts, list):
        message = "has no artifacts: it is no output of syft"
        raise InputError(message, source=Source(path, "artifacts"), hint="make it anew with syft")
    lines = Lines(file.text, "purl")
    listing = Listing(path)
    for key, entry in listing.tables("artifacts", artifacts, "an artifact"):
        purl = entry.get("purl")
        listing.add(
            entry.get("name"),
            entry.get("version"),
            Source(path, key, lines.next(purl)),
            (purl,),
            [item.get("path") for item in as_tables(entry.get("locations"))],
            is_python=entry.get("type") == "python",
        )
    return listing.environments()
