"""SPDX SBOMs: 2.2 and 2.3 as JSON, YAML and tag-value, 3.0 as JSON-LD. RDF/XML and spreadsheets are not read.

https://spdx.github.io/spdx-spec/v2.3/, https://spdx.github.io/spdx-spec/v3.0.1/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.collectors.sbom.components import MAX_COMPONENTS, Component, build_environments, make_component
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_tables
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_bytes, read_text
from compatcheck.core.yaml import YamlMap, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment

_REMEDY = "make the SBOM anew with the tool that wrote it"
_OTHER_FORMS = "convert it to SPDX JSON, with pyspdxtools for example"
_TAG = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)")
_INSTALLED_FILE = re.compile(r"(?:METADATA|PKG-INFO)$|\.(?:dist|egg)-info(?:/|$)|/conda-meta/[^/]+\.json$")
_SOURCE_INFO = re.compile(r"acquired package info from [^:]*: (.+)", re.DOTALL)


class Listing(NamedTuple):
    """The packages of a file."""

    components: list[Component]
    skipped: list[Skipped]


def read_spdx_json(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read an SPDX file in JSON, of version 2 or 3.

    Raises:
        InputError: it cannot be read, is no such file, or lists no Python package.
    """
    listing = list_json(path, files)
    return build_environments(path, listing.components, skipped=listing.skipped)


def read_spdx(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read an SPDX file whose name does not tell its form: JSON, YAML or tag-value.

    Raises:
        InputError: it cannot be read, is none of them, or lists no Python package.
    """
    listing = list_any(path, files)
    return build_environments(path, listing.components, skipped=listing.skipped)


def list_any(path: str, files: Files = LOCAL) -> Listing:
    """List the packages of a file in any of the forms.

    Raises:
        InputError: it cannot be read or is none of them.
    """
    head = read_bytes(path, files)[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head.replace(b"\0", b"")[2:]
    if head.startswith(b"{"):
        return list_json(path, files)
    if head.startswith(b"<"):
        message = "is XML; of SPDX, JSON, YAML and tag-value are read"
        raise InputError(message, source=Source(path), hint=_OTHER_FORMS)
    if re.search(rb"^SPDXVersion:", head, re.MULTILINE):
        return list_tag_value(path, files)
    return list_yaml(path, files)


def list_json(path: str, files: Files = LOCAL) -> Listing:
    """List the packages of a file in JSON.

    Raises:
        InputError: it cannot be read or is no such file.
    """
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


def list_yaml(path: str, files: Files = LOCAL) -> Listing:
    """List the packages of a file in YAML.

    Raises:
        InputError: it cannot be read or is no such file.
    """
    root = read_yaml(path, files).root
    if not isinstance(root, YamlMap) or not isinstance(root.get("spdxVersion"), str):
        message = "has no spdxVersion: it is no SPDX document"
        raise InputError(message, source=Source(path, "spdxVersion"), hint=_OTHER_FORMS)

    def line_of(_: int, entry: Mapping[str, Any]) -> int | None:
        return entry.line if isinstance(entry, YamlMap) else None

    return _list_version_2(path, root, line_of)


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
    found: list[Component] = []
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
    found: list[Component] = []
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


def list_tag_value(path: str, files: Files = LOCAL) -> Listing:
    """List the packages of a file in the tag-value form.

    Raises:
        InputError: it cannot be read or is no such file.
    """
    text = read_text(path, files)
    packages: list[tuple[int, dict[str, list[str]]]] = []
    names: dict[str, str] = {}
    relationships: list[tuple[object, object, object]] = []
    current: dict[str, list[str]] | None = None
    file_name: str | None = None
    version = False
    for number, tag, value in _tags(text, path):
        if tag == "SPDXVersion":
            version = True
        elif tag == "PackageName":
            current, file_name = {}, None
            packages.append((number, current))
            if len(packages) > MAX_COMPONENTS:
                message = f"holds more than {MAX_COMPONENTS} packages"
                raise InputError(message, source=Source(path, line=number), hint="check that this is the file you mean")
        elif tag in {"FileName", "SnippetSPDXID", "LicenseID"}:
            current, file_name = None, value if tag == "FileName" else None
        elif tag == "SPDXID" and file_name is not None:
            names[value] = file_name
        elif tag == "Relationship":
            words = value.split()
            if len(words) >= 3:
                relationships.append((words[0], words[1], words[2]))
        if current is not None:
            current.setdefault(tag, []).append(value)
    if not version:
        message = "has no SPDXVersion: it is no SPDX document"
        raise InputError(message, source=Source(path), hint=_OTHER_FORMS)
    contained = _contained(relationships, names)
    found = []
    for number, fields in packages:
        references = [reference.split() for reference in fields.get("ExternalRef", ())]
        purls = [words[2] for words in references if len(words) > 2 and words[1] == "purl"]
        identity, stated = _first(fields, "SPDXID"), _first(fields, "PackageFileName")
        own = [*contained.get(identity or "", []), *([stated] if stated else [])]
        component = make_component(
            _first(fields, "PackageName"),
            _first(fields, "PackageVersion"),
            Source(path, identity, number),
            purls,
            [*_paths(_first(fields, "PackageSourceInfo")), *(item for item in own if _INSTALLED_FILE.search(item))],
        )
        if component is not None:
            found.append(component)
    return Listing(found, [])


def _first(fields: Mapping[str, Sequence[str]], tag: str) -> str | None:
    return next(iter(fields.get(tag, ())), None)


def _tags(text: str, path: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, tag and value; a value between ``<text>`` and ``</text>`` may go over several lines."""
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        match = _TAG.match(line)
        if match is None:
            continue
        tag, value = match[1], match[2].rstrip("\r ")
        if value.startswith("<text>"):
            parts = [value.removeprefix("<text>")]
            while "</text>" not in parts[-1]:
                following = next(lines, None)
                if following is None:
                    message = f"the text of {tag} is not closed: the file is cut off"
                    raise InputError(message, source=Source(path, tag, number), hint=_REMEDY)
                parts.append(following[1])
            parts[-1] = parts[-1].partition("</text>")[0]
            value = "\n".join(parts)
        yield number, tag, value
