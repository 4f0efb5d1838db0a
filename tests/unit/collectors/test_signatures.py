"""Files of conda and SBOMs are told by their content; training configurations and other files are not taken for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.recognise import recognise, recognise_content, recognise_named

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = "name: x\ndependencies:\n  # a comment\n\n  - pytorch::pytorch=2.5  # [linux]\n  - pip:\n    - trl\n"
LIST = "# packages in environment at /x:\n#\n# Name   Version  Build  Channel\npytorch  2.5.1  py311_0  pytorch\n"
EXPORT = "# This file may be used to create an environment using:\n# platform: linux-64\npytorch=2.5.1=py311_0\n"
EXPLICIT = "# platform: linux-64\n@EXPLICIT\nhttps://h/linux-64/a-1-0.conda\n"
LOCK = "version: 1\nmetadata: {}\npackage:\n- name: a\n  manager: conda\n  platform: linux-64\n"
PIXI_LOCK = "version: 6\nenvironments:\n  default: {}\npackages: []\n"
CYCLONEDX = '{"bomFormat": "CycloneDX", "components": []}'
SORTED_CYCLONEDX = '{"components": [{"bom-ref": "a"}], "specVersion": "1.6", "bomFormat": "CycloneDX"}'
XML = '<?xml version="1.0"?>\n<bom xmlns="http://cyclonedx.org/schema/bom/1.4"/>'
SPDX = '{"spdxVersion": "SPDX-2.3"}'
TAG_VALUE = "SPDXVersion: SPDX-2.3\n"
SPDX_3 = '{"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": []}'
SYFT = '{"artifacts": [{"name": "a", "foundBy": "python"}]}'
JSON_LIST = '[\n {"name": "a", "build_string": "0", "version": "1"}\n]'


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("environment.yml", ENVIRONMENT, "conda_environment"),
        ("environment-gpu.yaml", ENVIRONMENT, "conda_environment"),
        ("env.yml", ENVIRONMENT, "conda_environment"),
        ("conda_env.yaml", ENVIRONMENT, "conda_environment"),
        ("environment.yml", "learning_rate: 1.0e-5\nmodel_name_or_path: x\n", None),
        ("environment.yml", "dependencies:\n- name: redis\n  version: 1\n", None),
        ("conda_list.txt", LIST, "conda_list"),
        ("environment.txt", LIST, "conda_list"),
        ("requirements.txt", EXPORT, "conda_list"),
        ("requirements.txt", "torch==2.5.1\n", "requirements"),
        ("spec-file.txt", EXPLICIT, "conda_list"),
        ("conda-linux-64.lock", EXPLICIT, "conda_list"),
        ("conda.json", JSON_LIST, "conda_list"),
        ("conda-lock.yml", LOCK, "conda_lock"),
        ("gpu.conda-lock.yml", LOCK, "conda_lock"),
        ("conda-lock.yml", "name: build\non: push\n", None),
        ("pixi.lock", PIXI_LOCK, "pixi_lock"),
        ("pixi.toml", "", "pixi"),
        ("pyproject.toml", "[tool.pixi.workspace]\n", "pixi"),
        ("pyproject.toml", "[tool.pixilate]\n", "pyproject"),
        ("bom.json", CYCLONEDX, "cyclonedx_json"),
        ("image.cdx.json", SORTED_CYCLONEDX, "cyclonedx_json"),
        ("sbom.json", SPDX, "spdx"),
        ("sbom.json", SYFT, "syft_json"),
        ("bom.xml", XML, "cyclonedx_xml"),
        ("bom.xml", "<project/>", None),
        ("image.spdx.json", SPDX, "spdx"),
        ("image.spdx", TAG_VALUE, "spdx"),
        ("image.spdx3.json", SPDX_3, "spdx"),
        ("bom.json", '{"zero_optimization": {"stage": 3}}', None),
        ("config.json", CYCLONEDX, None),
    ],
)
def test_names_and_content(tmp_path: Path, name: str, content: str, kind: str | None) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert recognise(str(path)) == kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (ENVIRONMENT, "conda_environment"),
        (LIST, "conda_list"),
        (EXPORT, "conda_list"),
        (EXPLICIT, "conda_list"),
        (JSON_LIST, "conda_list"),
        (LOCK, "conda_lock"),
        (PIXI_LOCK, "pixi_lock"),
        (CYCLONEDX, "cyclonedx_json"),
        (SORTED_CYCLONEDX, "cyclonedx_json"),
        (XML, "cyclonedx_xml"),
        (SPDX, "spdx"),
        (TAG_VALUE, "spdx"),
        (SPDX_3, "spdx"),
        (SYFT, "syft_json"),
        ('[workspace]\nchannels = ["conda-forge"]\n', "pixi"),
        ("torch==2.5.1\n", "requirements"),
        ("compute_environment: LOCAL_MACHINE\n", None),
        ('{"model_type": "llama"}', None),
        ('{"zero_optimization": {}}', None),
        (
            "My file:\n\n" + ENVIRONMENT + "and then it crashes, as one can read below; what can I do about it?\n" * 9,
            None,
        ),
        ("My file:\n\n" + EXPLICIT + "and then it crashes, as one can read below\n" * 9, None),
        ("The SBOM says\nspdxVersion: SPDX-2.3 but the tool does not like that at all.\n", None),
        ("I see this:\n\n" + LIST + "\n" + "and then it crashes, as one can read in the long trace below\n" * 5, None),
    ],
)
def test_content_without_a_name(tmp_path: Path, content: str, kind: str | None) -> None:
    assert recognise_content(content.encode()) == kind
    path = tmp_path / "inventory.dat"
    path.write_text(content)
    assert recognise_named(str(path)) == kind
    if kind == "conda_list":
        assert recognise_content(content.encode("utf-16")) == kind


def test_the_schema_of_sboms_is_no_sbom() -> None:
    schema = '{"$schema": "http://json-schema.org/draft-07/schema#", "required": ["bomFormat"], "bom-ref": {}, "components": {}}'
    assert recognise_content(schema.encode()) is None
    assert recognise_content(b'{"bom-ref": "x", "components": []}') == "cyclonedx_json"
