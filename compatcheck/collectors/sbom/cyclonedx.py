"""CycloneDX SBOMs, JSON and XML, versions 1.2 to 1.7: components, those nested in others too.

https://cyclonedx.org/docs/latest/json/, https://cyclonedx.org/docs/latest/xml/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.sbom.components import MAX_COMPONENTS, SbomComponent, build_environments, make_component
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import Lines, read_json
from compatcheck.core.source import Skipped, Source
from compatcheck.core.xml import Element, read_xml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.environment import Environment

_LOCATION = re.compile(r"syft:location:\d+:path|aquasecurity:trivy:FilePath|SrcFile")
_PYTHON = {
    ("syft:package:language", "python"),
    ("syft:package:type", "python"),
    ("aquasecurity:trivy:PkgType", "python-pkg"),
}
_NAMESPACE = "http://cyclonedx.org/schema/bom/"
_REMEDY = "make the SBOM anew with the tool that wrote it"


def read_cyclonedx_json(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a CycloneDX file in JSON."""
    components, skipped, complete = list_json(path, files)
    return build_environments(path, components, skipped=skipped, complete=complete)


def list_json(path: str, files: Files = LOCAL) -> tuple[list[SbomComponent], list[Skipped], bool]:
    """List all components of a file in JSON, what cannot be read of them, and whether it says that it is complete."""
    file = read_json(path, files)
    data = file.data
    if not isinstance(data, dict) or data.get("bomFormat") != "CycloneDX":
        message = "has no bomFormat: CycloneDX"
        raise InputError(message, source=Source(path, "bomFormat"), hint=_REMEDY)
    lines = Lines(file.text, "purl")
    found: list[SbomComponent] = []
    skipped: list[Skipped] = []
    listed_in = _containers(data)
    metadata = data.get("metadata")
    root = metadata.get("component") if isinstance(metadata, dict) else None
    lines.next(root.get("purl") if isinstance(root, dict) else None)
    for key, entry in _walk(data.get("components"), path):
        if not isinstance(entry, dict):
            skipped.append(Skipped(Source(path, key), "a component is no object", _REMEDY, named=True))
            continue
        if entry.get("scope") == "excluded":
            continue
        properties = _properties(entry.get("properties"))
        locations: list[object] = [value for name, value in properties if _LOCATION.fullmatch(name)]
        locations += _occurrences(entry.get("evidence"))
        reference = entry.get("bom-ref")
        if not locations and isinstance(reference, str) and reference in listed_in:
            locations.append(listed_in[reference])
        purl = entry.get("purl")
        component = make_component(
            entry.get("name"),
            entry.get("version"),
            Source(path, key, lines.next(purl)),
            (purl,),
            locations,
            is_python=bool(_PYTHON & set(properties)),
            marker=next((value for name, value in properties if name == "uv:package:marker"), None),
        )
        if component is not None:
            found.append(component)
    return found, skipped, _is_complete(data, root)


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
    found = []
    for item in value if isinstance(value, list) else ():
        name, text = (item.get("name"), item.get("value")) if isinstance(item, dict) else (None, None)
        if isinstance(name, str) and isinstance(text, str):
            found.append((name, text))
    return found


def _occurrences(evidence: object) -> list[object]:
    occurrences = evidence.get("occurrences") if isinstance(evidence, dict) else None
    return (
        [item.get("location") for item in occurrences if isinstance(item, dict)]
        if isinstance(occurrences, list)
        else []
    )


def _containers(data: Mapping[str, Any]) -> dict[str, str]:
    """Map components to the lock or manifest they depend on: trivy lists each as an application of its own."""
    files: dict[str, str] = {}
    for entry in data["components"] if isinstance(data.get("components"), list) else ():
        if isinstance(entry, dict) and entry.get("type") == "application" and isinstance(entry.get("name"), str):
            properties = dict(_properties(entry.get("properties")))
            if properties.get("aquasecurity:trivy:Class") == "lang-pkgs" and isinstance(entry.get("bom-ref"), str):
                files[entry["bom-ref"]] = entry["name"]
    found: dict[str, str] = {}
    for entry in data["dependencies"] if files and isinstance(data.get("dependencies"), list) else ():
        name = files.get(entry["ref"]) if isinstance(entry, dict) and isinstance(entry.get("ref"), str) else None
        below = entry.get("dependsOn") if name is not None else None
        for reference in below if isinstance(below, list) else ():
            if isinstance(reference, str) and name is not None:
                found[reference] = name
    return found


def _is_complete(data: Mapping[str, Any], root: object) -> bool:
    """Tell whether a composition says that everything the root component consists of is listed."""
    compositions = data.get("compositions")
    reference = root.get("bom-ref") if isinstance(root, dict) else None
    for entry in compositions if isinstance(compositions, list) else ():
        if not isinstance(entry, dict) or entry.get("aggregate") != "complete":
            continue
        members = [
            item for key in ("assemblies", "dependencies") if isinstance(entry.get(key), list) for item in entry[key]
        ]
        if not members or (reference is not None and reference in members):
            return True
    return False


def read_cyclonedx_xml(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a CycloneDX file in XML."""
    components, complete = list_xml(path, files)
    return build_environments(path, components, complete=complete)


def list_xml(path: str, files: Files = LOCAL) -> tuple[list[SbomComponent], bool]:
    """List all components of a file in XML, and whether it says that it is complete."""
    file = read_xml(path, files)
    if file.root.name != "bom" or not file.namespace.startswith(_NAMESPACE):
        message = f"is no CycloneDX file: its root is <{file.root.name}>"
        raise InputError(message, source=Source(path, line=file.root.line), hint=_REMEDY)
    found: list[SbomComponent] = []
    pending = list(reversed(_children(file.root, "components")))
    while pending:
        element = pending.pop()
        pending += reversed(_children(element, "components"))
        component = None if element.value("scope") == "excluded" else _read_element(element, path)
        if component is not None:
            found.append(component)
    complete = any(
        item.value("aggregate") == "complete"
        and item.child("assemblies") is None
        and item.child("dependencies") is None
        for item in _children(file.root, "compositions")
    )
    return found, complete


def _children(element: Element, name: str) -> list[Element]:
    list_of = element.child(name)
    return [] if list_of is None else list(list_of.children)


def _read_element(element: Element, path: str) -> SbomComponent | None:
    properties = [(item.attributes.get("name", ""), item.text) for item in _children(element, "properties")]
    locations: list[object] = [value for name, value in properties if _LOCATION.fullmatch(name)]
    evidence = element.child("evidence")
    if evidence is not None:
        locations += [item.value("location") for item in _children(evidence, "occurrences")]
    return make_component(
        element.value("name"),
        element.value("version"),
        Source(path, "component", element.line),
        (element.value("purl"),),
        locations,
        is_python=bool(_PYTHON & set(properties)),
        marker=next((value for name, value in properties if name == "uv:package:marker"), None),
    )
