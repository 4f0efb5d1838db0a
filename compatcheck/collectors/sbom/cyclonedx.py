"""CycloneDX SBOMs, JSON and XML, versions 1.2 to 1.7: components, those nested in others too.

https://cyclonedx.org/docs/latest/json/, https://cyclonedx.org/docs/latest/xml/
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
from compatcheck.core.xml import Element, read_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compatcheck.core.environment import Environment

_LOCATION = re.compile(r"syft:location:\d+:path|aquasecurity:trivy:FilePath|SrcFile")
_PYTHON = {
    ("syft:package:language", "python"),
    ("syft:package:type", "python"),
    ("aquasecurity:trivy:PkgType", "python-pkg"),
}
_NAMESPACE = "http://cyclonedx.org/schema/bom/"


def read_cyclonedx_json(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a CycloneDX file in JSON."""
    return list_json(path, files).environments()


def read_cyclonedx_xml(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a CycloneDX file in XML."""
    return list_xml(path, files).environments()


def list_json(path: str, files: Files = LOCAL) -> Listing:
    """List all components of a file in JSON, those of other languages too."""
    file = read_json(path, files)
    data = as_table(file.data)
    if data.get("bomFormat") != "CycloneDX":
        message = "has no bomFormat: CycloneDX"
        raise InputError(message, source=Source(path, "bomFormat"), hint=REMEDY)
    lines = Lines(file.text, "purl")
    lines.next(as_table(as_table(data.get("metadata")).get("component")).get("purl"))
    return _list(path, data, lambda key, entry: Source(path, key, lines.next(entry.get("purl"))))


def list_xml(path: str, files: Files = LOCAL) -> Listing:
    """List all components of a file in XML, those of other languages too."""
    file = read_xml(path, files)
    if file.root.name != "bom" or not file.namespace.startswith(_NAMESPACE):
        message = f"is no CycloneDX file: its root is <{file.root.name}>"
        raise InputError(message, source=Source(path, line=file.root.line), hint=REMEDY)
    return _list(path, _as_table(file.root), lambda _, entry: Source(path, "component", entry["line"]))


def _as_table(element: Element) -> dict[str, Any]:
    """Return an element of XML as JSON has it."""
    table: dict[str, Any] = {name: element.value(name) for name in ("name", "version", "purl", "scope", "aggregate")}
    table["line"] = element.line
    for name in ("components", "compositions"):
        table[name] = [_as_table(item) for item in _children(element, name)]
    table["properties"] = [
        {"name": item.attributes.get("name", ""), "value": item.text} for item in _children(element, "properties")
    ]
    evidence = element.child("evidence")
    found = [] if evidence is None else _children(evidence, "occurrences")
    table["evidence"] = {"occurrences": [{"location": item.value("location")} for item in found]}
    # What a composition is of counts for nothing but that it is not of the whole.
    table["assemblies"] = [name for name in ("assemblies", "dependencies") if element.child(name) is not None]
    return table


def _children(element: Element, name: str) -> list[Element]:
    list_of = element.child(name)
    return [] if list_of is None else list_of.children


def _list(path: str, data: Mapping[str, Any], place: Callable[[str, Mapping[str, Any]], Source]) -> Listing:
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
        reference = entry.get("bom-ref")
        if not locations and isinstance(reference, str) and reference in listed_in:
            locations.append(listed_in[reference])
        listing.add(
            entry.get("name"),
            entry.get("version"),
            place(key, entry),
            (entry.get("purl"),),
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
