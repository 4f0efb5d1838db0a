"""What ``syft -o json`` writes: artifacts with the files they were found in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.collectors.sbom.components import SbomComponent, build_environments, make_component
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from compatcheck.core.environment import Environment

_REMEDY = "make it anew with syft"


def read_syft_json(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a file of syft's own format."""
    components, skipped = list_artifacts(path, files)
    return build_environments(path, components, skipped=skipped)


def list_artifacts(path: str, files: Files = LOCAL) -> tuple[list[SbomComponent], list[Skipped]]:
    """List all artifacts, and those that cannot be read."""
    file = read_json(path, files)
    artifacts = file.data.get("artifacts") if isinstance(file.data, dict) else None
    if not isinstance(artifacts, list):
        message = "has no artifacts: it is no output of syft"
        raise InputError(message, source=Source(path, "artifacts"), hint=_REMEDY)
    lines = Lines(file.text, "purl")
    found: list[SbomComponent] = []
    skipped: list[Skipped] = []
    for index, entry in enumerate(artifacts):
        key = f"artifacts[{index}]"
        if not isinstance(entry, dict):
            skipped.append(Skipped(Source(path, key), "an artifact is no object", _REMEDY, named=True))
            continue
        places = entry.get("locations")
        locations = [item.get("path") for item in places if isinstance(item, dict)] if isinstance(places, list) else []
        purl = entry.get("purl")
        component = make_component(
            entry.get("name"),
            entry.get("version"),
            Source(path, key, lines.next(purl)),
            (purl,),
            locations,
            is_python=entry.get("type") == "python",
        )
        if component is not None:
            found.append(component)
    return found, skipped
