"""No file of conda and no SBOM, however mutilated, raises anything but an InputError, or takes long."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.collectors.read import read_environments
from compatcheck.core.errors import InputError
from tests.effort import at_most

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://conda.anaconda.org/conda-forge/linux-64/pytorch-2.5.1-cuda126_py311h1_300.conda"
ENVIRONMENT = {
    "name": "x",
    "channels": ["conda-forge"],
    "platforms": ["linux-64", "osx-64"],
    "dependencies": ["python=3.11", "pytorch=2.5.1=*cuda*", {"pip": ["trl==0.9", "-r x.txt"]}, {"sel(linux)": "jax"}],
    "variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}
CONDA_LOCK = {
    "version": 1,
    "package": [
        {
            "name": "pytorch",
            "version": "2.5.1",
            "manager": "conda",
            "platform": "linux-64",
            "url": URL,
            "category": "main",
        },
        {
            "name": "trl",
            "version": "0.9",
            "manager": "pip",
            "platform": "linux-64",
            "url": "https://h/x",
            "categories": ["dev"],
        },
    ],
}
PIXI_LOCK = {
    "version": 6,
    "platforms": [{"name": "box", "subdir": "linux-64"}],
    "environments": {"default": {"packages": {"linux-64": [{"conda": URL}, {"pypi": "./x", "name": "x"}], "box": []}}},
    "packages": [
        {"conda": URL, "purls": ["pkg:pypi/torch"]},
        {"pypi": "./x", "name": "x", "version": "1", "editable": True},
        {"kind": "conda", "url": URL, "name": "pytorch"},
    ],
}
CYCLONEDX = {
    "bomFormat": "CycloneDX",
    "metadata": {"component": {"bom-ref": "root", "purl": "pkg:oci/x"}},
    "components": [
        {
            "name": "torch",
            "version": "2.5.1",
            "bom-ref": "a",
            "purl": "pkg:pypi/torch@2.5.1",
            "scope": "required",
            "properties": [
                {
                    "name": "syft:location:0:path",
                    "value": "/usr/lib/python3.11/site-packages/torch-2.dist-info/METADATA",
                }
            ],
            "evidence": {"occurrences": [{"location": "/x"}]},
            "components": [{"name": "y", "purl": "pkg:conda/y@1?build=py311_0&channel=https://h/c"}],
        },
        {
            "bom-ref": "lock",
            "type": "application",
            "name": "a",
            "properties": [{"name": "aquasecurity:trivy:Class", "value": "lang-pkgs"}],
        },
    ],
    "dependencies": [{"ref": "lock", "dependsOn": ["a"]}],
    "compositions": [{"aggregate": "complete", "assemblies": ["root"]}],
}
SPDX = {
    "spdxVersion": "SPDX-2.3",
    "files": [{"SPDXID": "f", "fileName": "/x/METADATA"}],
    "relationships": [{"spdxElementId": "p", "relationshipType": "CONTAINS", "relatedSpdxElement": "f"}],
    "packages": [
        {
            "SPDXID": "p",
            "name": "torch",
            "versionInfo": "2.5.1",
            "sourceInfo": "acquired package info from x: /a, /b",
            "hasFiles": ["f"],
            "packageFileName": "x.dist-info/METADATA",
            "externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:pypi/torch@2.5.1"}],
        }
    ],
}
SYFT = {
    "artifacts": [
        {"name": "torch", "version": "2", "type": "python", "purl": "pkg:pypi/torch@2", "locations": [{"path": "/a"}]}
    ]
}
CONDA_JSON = [{"name": "pytorch", "version": "2.5.1", "build_string": "py311_0", "channel": "pytorch"}]
TREES = {
    "conda_environment": [ENVIRONMENT],
    "conda_lock": [CONDA_LOCK],
    "pixi_lock": [PIXI_LOCK],
    "cyclonedx_json": [CYCLONEDX],
    "spdx": [SPDX],
    "syft_json": [SYFT],
    "conda_list": [CONDA_JSON],
}
PIXI = """\
[workspace]
platforms = ["linux-64"]
[dependencies]
pytorch = ">=2"
[environments]
a = ["b"]
[feature.b.pypi-dependencies]
x = { git = "u", rev = "1" }
"""
TEXTS = {
    "conda_list": [
        "# packages in environment at /x:\npython 3.11.1 h1_0\npytorch 2.5.1 py311_cuda12.4_0 pytorch\ntrl 0.9 pypi_0 pypi\n",
        "@EXPLICIT\n" + URL + "#0123\n# pip trl @ https://h/trl-0.9-py3-none-any.whl --hash=sha256:0\n",
        "pytorch=2.5.1=py311_0\n",
    ],
    "conda_environment": [yaml.safe_dump(ENVIRONMENT)],
    "conda_lock": [yaml.safe_dump(CONDA_LOCK)],
    "pixi_lock": [yaml.safe_dump(PIXI_LOCK)],
    "pixi": [PIXI],
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.sampled_from(
        ["", "*", "pkg:pypi/", "pkg:pypi/torch@%", "../..", "==", "linux-64", "{{ x }}", "1!2", "@", "://"]
    ),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"a": [1]}),
)


def _places(tree: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            found += _places(value, (*path, key))
    return found


def _read(path: Path, kind: str) -> None:
    try:
        environments = read_environments(str(path), kind)
    except InputError as error:
        assert error.hint
        return
    for environment in environments:
        for name, package in environment.packages.items():
            assert package.name == name
            assert (package.version is None) == (package.specifier is not None)
            assert package.source.path == str(path)


@pytest.mark.parametrize("kind", list(TREES))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_wrong_types_everywhere(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    tree: Any = copy.deepcopy(data.draw(st.sampled_from(TREES[kind])))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(_places(tree)))
        if not place:
            tree = copy.deepcopy(data.draw(SCALARS))
            break
        parent = tree
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = copy.deepcopy(data.draw(SCALARS))
    path = tmp_path / "file"
    path.write_text(json.dumps(tree))
    _read(path, kind)


@pytest.mark.parametrize("kind", list(TEXTS))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutilated_texts(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS[kind])).encode()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = (
            text[:start]
            + data.draw(st.one_of(st.just(b""), st.just(text[start:end] * 2), st.binary(max_size=6)))
            + text[end:]
        )
    path = tmp_path / "file"
    path.write_bytes(text)
    _read(path, kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("conda_environment", "dependencies:\n" + "  - a=1\n" * 60_000),
        ("conda_environment", "dependencies:\n  - '" + "a=" * 200_000 + "'\n"),
        ("conda_environment", "dependencies:\n  - 'a " + "1|" * 200_000 + "'\n"),
        ("conda_environment", "dependencies:\n  - 'a[" + "x='" * 100_000 + "]'\n"),
        (
            "conda_environment",
            "dependencies:\n" + "".join(f"  - &a{n} [{f'*a{n - 1}, ' * 9 if n else 'x'}]\n" for n in range(20)),
        ),
        ("conda_list", "# packages in environment at /x:\n" + "a 1 2\n" * 100_000),
        ("conda_list", "a" * 2_000_000),
        ("conda_list", "a=" * 1_000_000),
        ("conda_list", "a " * 1_000_000),
        ("cyclonedx_json", '{"bomFormat": "CycloneDX", "components": [' + '{"components": [' * 50_000),
        ("cyclonedx_json", '{"bomFormat": "CycloneDX", "components": [' + '{"name": "a"},' * 100_000 + "{}]}"),
        ("cyclonedx_json", '{"bomFormat": "CycloneDX", "x": "' + '"purl": "' * 100_000),
        ("spdx", '{"spdxVersion": "SPDX-2.3", "packages": [' + '{"name": "a"},' * 100_000 + "{}]}"),
    ],
)
def test_long_inputs_take_seconds_at_most(tmp_path: Path, kind: str, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with at_most(80):
        _read(path, kind)


@pytest.mark.parametrize("kind", [*TREES, "pixi"])
def test_a_hundred_megabytes_are_refused_unread(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with at_most(10), pytest.raises(InputError, match="large"):
        read_environments(str(path), kind)
