"""CycloneDX in JSON: nested components, locations of scanners, completeness, hostile files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.collectors.sbom.cyclonedx import list_json, read_cyclonedx_json, read_cyclonedx_xml
from compatcheck.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

SITE = "/usr/lib64/python3.11/site-packages"


def write(folder: Path, components: object, **more: object) -> str:
    path = folder / "bom.json"
    path.write_text(
        json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components, **more}, indent=1)
    )
    return str(path)


def located(name: str, version: str, key: str, folder: str = SITE) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "type": "library",
        "purl": f"pkg:pypi/{name}@{version}",
        "properties": [{"name": key, "value": f"{folder}/{name}-{version}.dist-info/METADATA"}],
    }


@pytest.mark.parametrize("key", ["syft:location:0:path", "aquasecurity:trivy:FilePath"])
def test_locations_of_scanners(tmp_path: Path, key: str) -> None:
    vendored = located("packaging", "24.2", key, f"{SITE}/setuptools/_vendor")
    path = write(tmp_path, [located("torch", "2.5.1", key), vendored, {"name": "x", "type": "file"}])
    (environment,) = read_cyclonedx_json(path)
    assert {name: package.version for name, package in environment.packages.items()} == {"torch": "2.5.1"}
    assert environment.complete
    assert environment.python == "3.11"
    line = environment.packages["torch"].source.line
    assert line is not None
    assert "pkg:pypi/torch@2.5.1" in (tmp_path / "bom.json").read_text().splitlines()[line - 1]


def test_nested_and_excluded_components(tmp_path: Path) -> None:
    nested = {
        "name": "a",
        "components": [{"name": "b", "components": [{"name": "torch", "purl": "pkg:pypi/torch@2.5.1"}]}],
    }
    excluded = {"name": "trl", "purl": "pkg:pypi/trl@1.0", "scope": "excluded"}
    (environment,) = read_cyclonedx_json(write(tmp_path, [nested, excluded, 3, {"purl": "pkg:pypi/"}]))
    assert set(environment.packages) == {"torch"}
    assert environment.packages["torch"].source.key == "components[0].components[0].components[0]"
    assert len(environment.skipped) == 1


def test_lockfiles_of_trivy_are_told_apart(tmp_path: Path) -> None:
    application = {
        "bom-ref": "lock",
        "type": "application",
        "name": "app/poetry.lock",
        "properties": [{"name": "aquasecurity:trivy:Class", "value": "lang-pkgs"}],
    }
    parts = [application] + [
        {"bom-ref": str(n), "name": "torch", "purl": f"pkg:pypi/torch@2.{n}.0", "type": "library"} for n in (4, 5)
    ]
    found = read_cyclonedx_json(
        write(tmp_path, parts, dependencies=[{"ref": "lock", "dependsOn": ["5"]}, {"ref": 3}, 4])
    )
    assert [(item.origin.partition(" ")[2], item.packages["torch"].version) for item in found] == [
        ("(no location)", "2.4.0"),
        ("(/app/poetry.lock)", "2.5.0"),
    ]


@pytest.mark.parametrize(
    ("compositions", "complete"),
    [
        ([{"aggregate": "complete"}], True),
        ([{"aggregate": "complete", "assemblies": ["root"]}], True),
        ([{"aggregate": "complete", "assemblies": ["another"]}], False),
        ([{"aggregate": "incomplete"}], False),
        ([3], False),
    ],
)
def test_only_what_an_sbom_calls_complete_is(tmp_path: Path, compositions: object, complete: bool) -> None:  # noqa: FBT001
    parts = [{"name": "torch", "purl": "pkg:pypi/torch@2.5.1"}]
    path = write(tmp_path, parts, compositions=compositions, metadata={"component": {"bom-ref": "root", "name": "x"}})
    assert read_cyclonedx_json(path)[0].complete is complete


def test_python_packages_without_a_package_url(tmp_path: Path) -> None:
    part = {"name": "Torch", "version": "2.5.1", "properties": [{"name": "syft:package:type", "value": "python"}]}
    (environment,) = read_cyclonedx_json(write(tmp_path, [part]))
    assert environment.packages["torch"].version == "2.5.1"


def test_xml_says_how_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "bom.xml"
    path.write_text('<?xml version="1.0"?>\n<bom xmlns="http://cyclonedx.org/schema/bom/1.4"/>')
    with pytest.raises(InputError, match="is CycloneDX in XML; JSON is read") as caught:
        read_cyclonedx_xml(str(path))
    assert "cyclonedx convert" in (caught.value.hint or "")


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    part: dict[str, Any] = {"name": "torch"}
    for _ in range(200):
        part = {"name": "x", "components": [part]}
    with pytest.raises(InputError, match="levels deep"):
        list_json(write(tmp_path, [part]))
