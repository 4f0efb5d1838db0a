"""SPDX SBOMs in JSON, 2.2 and 2.3. A file in another form or of version 3 says how to convert it.

https://spdx.github.io/spdx-spec/v2.3/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.sbom.components import REMEDY, Listing
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_tables, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment

_TAG_VALUE = re.compile(rb"^SPDXVersion:", re.MULTILINE)
_INSTALLED_FILE = re.compile(r"(?:METADATA|PKG-INFO)$|\.(?:dist|egg)-info(?:/|$)|/conda-meta/[^/]+\.json$")
_SOURCE_INFO = re.compile(r"acquired package info from [^:]*: (.+)", re.DOTALL)


def read_spdx(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read an SPDX file in JSON, of version 2."""
    return list_packages(path, files).environments()


def list_packages(path: str, files: Files = LOCAL) -> Listing:
    """List the packages of a file in JSON."""
    head = read_bytes(path, files)[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head.replace(b"\0", b"")[2:].lstrip()
    if head and not head.startswith((b"{", b"[")):
        form = "XML" if head.startswith(b"<") else "tag-value form" if _TAG_VALUE.search(head) else "YAML"
        message = f"is SPDX in {form}; JSON is read"
        hint = "convert it: pyspdxtools -i FILE -o sbom.spdx.json, or syft convert FILE -o spdx-json"
        raise InputError(message, source=Source(path), hint=hint)
    file = read_json(path, files)
    data = file.data
    if not isinstance(data, dict):
        message = "is JSON, but no SPDX document"
        raise InputError(message, source=Source(path), hint=REMEDY)
    if isinstance(data.get("predicate"), dict) and "spdxVersion" in data["predicate"]:
        data = data["predicate"]  # an in-toto attestation around the document
    if isinstance(data.get("sbom"), dict) and "spdxVersion" in data["sbom"]:
        data = data["sbom"]  # GitHub's answer to GET /repos/…/dependency-graph/sbom
    if "@graph" in data and "spdxVersion" not in data:
        message = "is SPDX 3; SPDX 2 is read"
        raise InputError(message, source=Source(path), hint="write it as 2.3: syft IMAGE -o spdx-json")
    if not isinstance(data.get("spdxVersion"), str):
        message = "has no spdxVersion: it is no SPDX document"
        raise InputError(message, source=Source(path, "spdxVersion"), hint=REMEDY)
    return _list_version_2(path, data, Lines(file.text, "SPDXID"))


def _list_version_2(path: str, data: Mapping[str, Any], lines: Lines) -> Listing:
    files = {
        entry["SPDXID"]: entry["fileName"]
        for entry in as_tables(data.get("files"))
        if isinstance(entry.get("SPDXID"), str) and isinstance(entry.get("fileName"), str)
    }
    contained: dict[str, list[str]] = {}
    for entry in as_tables(data.get("relationships")):
        element, related = entry.get("spdxElementId"), entry.get("relatedSpdxElement")
        if entry.get("relationshipType") == "CONTAINS" and isinstance(element, str) and isinstance(related, str):
            contained.setdefault(element, []).extend([files[related]] if related in files else [])
    listing = Listing(path)
    for key, entry in listing.tables("packages", data.get("packages"), "a package"):
        purls = [
            reference.get("referenceLocator")
            for reference in as_tables(entry.get("externalRefs"))
            if reference.get("referenceType") == "purl"
        ]
        listing.add(
            entry.get("name"),
            entry.get("versionInfo"),
            Source(path, key, lines.next(entry.get("SPDXID"))),
            purls,
            [*_paths(entry.get("sourceInfo")), *_own_files(entry, files, contained)],
        )
    return listing


def _own_files(entry: Mapping[str, Any], files: Mapping[str, str], contained: Mapping[str, list[str]]) -> list[str]:
    """Return the metadata files of a package, where the document lists them."""
    own = [files[item] for item in as_texts(entry.get("hasFiles")) if item in files]
    own += contained.get(str(entry.get("SPDXID")), [])
    name = entry.get("packageFileName")
    if isinstance(name, str):
        own.append(name)
    return [item for item in own if _INSTALLED_FILE.search(item)]


def _paths(info: object) -> list[str]:
    """Return the files that syft says it took a package from."""
    match = _SOURCE_INFO.match(info) if isinstance(info, str) else None
    return match[1].split(", ") if match is not None else []
