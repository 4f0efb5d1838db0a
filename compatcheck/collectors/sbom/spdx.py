"""SPDX SBOMs in JSON: 2.2, 2.3, and 3.0 as JSON-LD. A file in another form says how to convert it.

https://spdx.github.io/spdx-spec/v2.3/, https://spdx.github.io/spdx-spec/v3.0.1/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.collectors.sbom.components import SbomComponent, build_environments, make_component
from compatcheck.core.errors import InputError, NoEnvironmentError
from compatcheck.core.expected_shapes import as_tables
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.environment import Environment

_REMEDY = "make the SBOM anew with the tool that wrote it"
_TAG_VALUE = re.compile(rb"^SPDXVersion:", re.MULTILINE)
_INSTALLED_FILE = re.compile(r"(?:METADATA|PKG-INFO)$|\.(?:dist|egg)-info(?:/|$)|/conda-meta/[^/]+\.json$")
_SOURCE_INFO = re.compile(r"acquired package info from [^:]*: (.+)", re.DOTALL)


class Listing(NamedTuple):
    """The packages of a file."""

    components: list[SbomComponent]
    skipped: list[Skipped]


def read_spdx(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read an SPDX file in JSON, of version 2 or 3."""
    listing = list_packages(path, files)
    return build_environments(path, listing.components, skipped=listing.skipped)


def list_packages(path: str, files: Files = LOCAL) -> Listing:
    """List the packages of a file in JSON."""
    head = read_bytes(path, files)[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head.replace(b"\0", b"")[2:].lstrip()
    if head and not head.startswith((b"{", b"[")):
        form = "XML" if head.startswith(b"<") else "tag-value form" if _TAG_VALUE.search(head) else "YAML"
        message = f"is SPDX in {form}; JSON is read"
        hint = "convert it: pyspdxtools -i FILE -o sbom.spdx.json, or syft convert FILE -o spdx-json"
        raise NoEnvironmentError(message, source=Source(path), hint=hint)
    file = read_json(path, files)
    data = file.data
    if not isinstance(data, dict):
        message = "is JSON, but no SPDX document"
        raise InputError(message, source=Source(path), hint=_REMEDY)
    if isinstance(data.get("predicate"), dict) and "spdxVersion" in data["predicate"]:
        data = data["predicate"]  # an in-toto attestation around the document
    if isinstance(data.get("sbom"), dict) and "spdxVersion" in data["sbom"]:
        data = data["sbom"]  # GitHub's answer to GET /repos/…/dependency-graph/sbom
    if "@graph" in data and "spdxVersion" not in data:
        return _list_version_3(path, data, Lines(file.text, "spdxId", "@id"))
    if not isinstance(data.get("spdxVersion"), str):
        message = "has no spdxVersion: it is no SPDX document"
        raise InputError(message, source=Source(path, "spdxVersion"), hint=_REMEDY)
    lines = Lines(file.text, "SPDXID")

    def line_of(_: int, entry: Mapping[str, Any]) -> int | None:
        return lines.next(entry.get("SPDXID"))

    return _list_version_2(path, data, line_of)


def _list_version_2(path: str, data: Mapping[str, Any], line_of: Any) -> Listing:  # noqa: ANN401 (a function)
    files = {
        entry["SPDXID"]: entry["fileName"]
        for entry in as_tables(data.get("files"))
        if isinstance(entry.get("SPDXID"), str) and isinstance(entry.get("fileName"), str)
    }
    contained = _contained(
        (
            (entry.get("spdxElementId"), entry.get("relationshipType"), entry.get("relatedSpdxElement"))
            for entry in as_tables(data.get("relationships"))
        ),
        files,
    )
    found: list[SbomComponent] = []
    skipped: list[Skipped] = []
    packages = data.get("packages")
    for index, entry in enumerate(packages if isinstance(packages, list) else ()):
        key = f"packages[{index}]"
        if not isinstance(entry, dict):
            skipped.append(Skipped(Source(path, key), "a package is no object", _REMEDY, named=True))
            continue
        purls = [
            reference.get("referenceLocator")
            for reference in as_tables(entry.get("externalRefs"))
            if reference.get("referenceType") == "purl"
        ]
        locations = [*_paths(entry.get("sourceInfo")), *_own_files(entry, files, contained)]
        component = make_component(
            entry.get("name"),
            entry.get("versionInfo"),
            Source(path, key, line_of(index, entry)),
            purls,
            locations,
        )
        if component is not None:
            found.append(component)
    return Listing(found, skipped)


def _own_files(entry: Mapping[str, Any], files: Mapping[str, str], contained: Mapping[str, list[str]]) -> list[str]:
    """Return the metadata files of a package, where the document lists them."""
    stated = entry.get("hasFiles")
    own = (
        [files[item] for item in stated if isinstance(item, str) and item in files] if isinstance(stated, list) else []
    )
    own += contained.get(str(entry.get("SPDXID")), [])
    name = entry.get("packageFileName")
    if isinstance(name, str):
        own.append(name)
    return [item for item in own if _INSTALLED_FILE.search(item)]


def _contained(
    relationships: Iterable[tuple[object, object, object]], files: Mapping[str, str]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for element, kind, related in relationships:
        if kind == "CONTAINS" and isinstance(element, str) and isinstance(related, str) and related in files:
            found.setdefault(element, []).append(files[related])
    return found


def _paths(info: object) -> list[str]:
    """Return the files that syft says it took a package from."""
    match = _SOURCE_INFO.match(info) if isinstance(info, str) else None
    return match[1].split(", ") if match is not None else []


def _list_version_3(path: str, data: Mapping[str, Any], lines: Lines) -> Listing:
    found: list[SbomComponent] = []
    skipped: list[Skipped] = []
    graph = data.get("@graph")
    for index, entry in enumerate(graph if isinstance(graph, list) else ()):
        if not isinstance(entry, dict):
            skipped.append(Skipped(Source(path, f"@graph[{index}]"), "an element is no object", _REMEDY, named=True))
            continue
        kind = entry.get("type", entry.get("@type"))
        line = lines.next(entry.get("spdxId", entry.get("@id")))
        if not isinstance(kind, str) or kind.rpartition("/")[2].rpartition("_")[2] != "Package":
            continue
        purls = [entry.get("software_packageUrl"), entry.get("packageUrl")]
        purls += [
            identifier.get("identifier")
            for identifier in as_tables(entry.get("externalIdentifier"))
            if identifier.get("externalIdentifierType") in ("packageUrl", "purl")
        ]
        component = make_component(
            entry.get("name"),
            entry.get("software_packageVersion", entry.get("packageVersion")),
            Source(path, f"@graph[{index}]", line),
            purls,
            _paths(entry.get("software_sourceInfo")),
        )
        if component is not None:
            found.append(component)
    return Listing(found, skipped)
