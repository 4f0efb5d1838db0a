"""SPDX 2 in JSON; version 3 and other forms say how to convert them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from compatcheck.collectors.sbom.spdx import read_spdx
from compatcheck.collectors.sbom.syft import read_syft_json
from compatcheck.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "/opt/venv/lib/python3.12/site-packages/torch-2.5.1.dist-info/METADATA"
PACKAGE = {
    "SPDXID": "SPDXRef-torch",
    "name": "torch",
    "versionInfo": "2.5.1",
    "sourceInfo": f"acquired package info from installed python package manifest file: {FILE}, /x/RECORD",
    "externalRefs": [
        {"referenceType": "cpe23Type", "referenceLocator": "cpe:2.3:a:x"},
        {"referenceType": "purl", "referenceLocator": "pkg:pypi/torch@2.5.1"},
    ],
}
DOCUMENT: dict[str, Any] = {
    "spdxVersion": "SPDX-2.3",
    "packages": [{"name": "root", "SPDXID": "SPDXRef-root"}, PACKAGE],
}
TAG_VALUE = "SPDXVersion: SPDX-2.3\nPackageName: torch\nPackageVersion: 2.5.1\n"
GRAPH = {"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": [{"type": "software_Package"}]}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.spdx.json", json.dumps(DOCUMENT, indent=1), 9),
        ("a.spdx", json.dumps({"sbom": DOCUMENT}, indent=1), 10),
    ],
)
def test_forms_of_version_2(tmp_path: Path, name: str, text: str, line: int) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    (environment,) = read_spdx(str(path))
    assert {name: package.version for name, package in environment.packages.items()} == {"torch": "2.5.1"}
    assert environment.python == "3.12"
    assert environment.complete
    assert environment.packages["torch"].source.line == line


def test_files_of_a_package_tell_where_it_lies(tmp_path: Path) -> None:
    package = {key: value for key, value in PACKAGE.items() if key != "sourceInfo"}
    document = {
        "spdxVersion": "SPDX-2.3",
        "packages": [package],
        "files": [{"SPDXID": "SPDXRef-f", "fileName": FILE}],
        "relationships": [
            {"spdxElementId": "SPDXRef-torch", "relationshipType": "CONTAINS", "relatedSpdxElement": "SPDXRef-f"}
        ],
    }
    path = tmp_path / "a.spdx.json"
    path.write_text(json.dumps(document))
    assert read_spdx(str(path))[0].complete


def test_syft_json(tmp_path: Path) -> None:
    artifact = {"name": "torch", "version": "2.5.1", "type": "python", "purl": "pkg:pypi/torch@2.5.1"}
    path = tmp_path / "a.syft.json"
    path.write_text(json.dumps({"artifacts": [{**artifact, "locations": [{"path": FILE}, 3]}, 4]}))
    (environment,) = read_syft_json(str(path))
    assert environment.packages["torch"].version == "2.5.1"
    assert not environment.complete  # one artifact could not be read
    path.write_text("[]")
    with pytest.raises(InputError, match="no artifacts"):
        read_syft_json(str(path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<?xml version='1.0'?><rdf/>", "is SPDX in XML; JSON is read"),
        (TAG_VALUE, "is SPDX in tag-value form; JSON is read"),
        (yaml.safe_dump(DOCUMENT, sort_keys=False), "is SPDX in YAML; JSON is read"),
        (json.dumps(GRAPH), "is SPDX 3; SPDX 2 is read"),
        ("{}", "no spdxVersion"),
        ("[]", "no SPDX document"),
        ('{"spdxVersion": "SPDX-2.3", "packages": 3}', "lists 0 components"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.spdx"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as error:
        read_spdx(str(path))
    assert error.value.hint
