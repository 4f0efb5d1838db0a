"""CycloneDX SBOMs in JSON, versions 1.2 to 1.7: components, those nested in others too. XML says how to convert it.

https://cyclonedx.org/docs/latest/json/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.sbom.components import MAX_COMPONENTS, REMEDY, Listing
from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_tables, as_texts
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.environment import Environment

_LOCATION = re.compile(r"syft:location:\d+:path|aquasecurity:trivy:FilePath|SrcFile")
_PYTHON = {
    ("syft:package:language", "python"),
    ("syft:package:type", "python"),
    ("aquasecurity:trivy:PkgType", "python-pkg"),
}
_CONVERT = "convert it: cyclonedx convert --input-file FILE --output-file sbom.cdx.json, or syft convert FILE -o cyclonedx-json"


def read_cyclonedx_json(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a CycloneDX file in JSON."""
    return list_json(path, files).environments()


def read_cyclonedx_xml(path: str, _files: Files = LOCAL) -> tuple[Environment, ...]:
    """Say that the form is not read."""
    message = "is CycloneDX in XML; JSON is read"
    raise InputError(message, source=Source(path), hint=_CONVERT)


def list_json(path: str, files: Files = LOCAL) -> Listing:
    """List all components of a file in JSON, those of other languages too."""
    file = read_json(path, files)
    data = as_table(file.data)
    if data.get("bomFormat") != "CycloneDX":
        message = "has no bomFormat: CycloneDX"
        raise InputError(message, source=Source(path, "bomFormat"), hint=REMEDY)
    lines = Lines(file.text, "purl")
    lines.next(as_table(as_table(data.get("metadata")).get("component")).get("purl"))
    listing = Listing(path, is_complete=_is_complete(data))
    listed_in = _containers(data)
    for key, entry in _walk(data.get("components"), path):
        if not isinstance(entry, dict):
            listing.skip(key, "a component is no object")
            continue
        if entry.get("scope") == "excluded":
            continue
        properties = _properties(entry.get("properties"))
        locations: list[object] = [value for name, value in properties if _LOCATION.fullmatch(name)]
        locations += [item.get("location") for item in as_tables(as_table(entry.get("evidence")).get("occurrences"))]
        reference, purl = entry.get("bom-ref"), entry.get("purl")
        if not locations and isinstance(reference, str) and reference in listed_in:
            locations.append(listed_in[reference])
        listing.add(
            entry.get("name"),
            entry.get("version"),
            Source(path, key, lines.next(purl)),
            (purl,),
            locations,
            is_python=bool(_PYTHON & set(properties)),
            marker=next((value for name, value in properties if name == "uv:package:marker"), None),
        )
    return listing


def _walk(entries: object, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all components in the order of the file, each with its key."""
    pending = [(f"components[{index}]", entry) for index, entry in _reversed(entries)]
    count = 0
    while pending:
        key, entry = pending.pop()
        count += 1
        if count > MAX_COMPONENTS:
            message = f"holds more than {MAX_COMPONENTS} components"
            raise InputError(message, source=Source(path), hint="check that this is the file you mean")
        yield key, entry
        if isinstance(entry, dict) and "components" in entry:
            pending += [(f"{key}.components[{index}]", item) for index, item in _reversed(entry["components"])]


def _reversed(entries: object) -> list[tuple[int, Any]]:
    return list(enumerate(entries))[::-1] if isinstance(entries, list) else []


def _properties(value: object) -> list[tuple[str, str]]:
    pairs = ((item.get("name"), item.get("value")) for item in as_tables(value))
    return [(name, text) for name, text in pairs if isinstance(name, str) and isinstance(text, str)]


def _containers(data: Mapping[str, Any]) -> dict[str, str]:
    """Map components to the lock or manifest they depend on: trivy lists each as an application of its own."""
    files: dict[str, str] = {}
    for entry in as_tables(data.get("components")):
        if entry.get("type") == "application" and isinstance(entry.get("name"), str):
            properties = dict(_properties(entry.get("properties")))
            if properties.get("aquasecurity:trivy:Class") == "lang-pkgs" and isinstance(entry.get("bom-ref"), str):
                files[entry["bom-ref"]] = entry["name"]
    return {
        reference: files[entry["ref"]]
        for entry in (as_tables(data.get("dependencies")) if files else ())
        if isinstance(entry.get("ref"), str) and entry["ref"] in files
        for reference in as_texts(entry.get("dependsOn"))
    }


def _is_complete(data: Mapping[str, Any]) -> bool:
    """Tell whether a composition says that everything the root component consists of is listed."""
    reference = as_table(as_table(data.get("metadata")).get("component")).get("bom-ref")
    for entry in as_tables(data.get("compositions")):
        if entry.get("aggregate") == "complete":
            members = (*as_texts(entry.get("assemblies")), *as_texts(entry.get("dependencies")))
            if not members or (reference is not None and reference in members):
                return True
    return False
