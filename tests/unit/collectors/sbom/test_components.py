"""Components of an SBOM are grouped by the environment they lie in; copies inside packages are not counted."""

from __future__ import annotations

import time

import pytest

from compatcheck.collectors.sbom.components import SbomComponent, build_environments
from compatcheck.collectors.sbom.purl import parse_purl
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source

SITE = "usr/local/lib/python3.11/site-packages"


def component(purl: str, *locations: str, marker: str | None = None) -> SbomComponent:
    parsed = parse_purl(purl)
    assert parsed is not None
    return SbomComponent(parsed.name, parsed.version, Source("bom.json"), parsed, locations=locations, marker=marker)


def pypi(name: str, version: str, folder: str = f"/{SITE}", file: str = "METADATA") -> SbomComponent:
    return component(f"pkg:pypi/{name}@{version}", f"{folder}/{name}-{version}.dist-info/{file}")


def versions(environment: Environment) -> dict[str, str | None]:
    return {name: package.version for name, package in environment.packages.items()}


def test_an_image_holds_several_environments() -> None:
    found = build_environments(
        "bom.json",
        [
            pypi("torch", "2.5.1"),
            pypi("numpy", "1.26.4"),
            pypi("numpy", "1.24.2", "/usr/lib/python3/dist-packages"),
            pypi("torch", "2.4.0", "/opt/conda/lib/python3.12/site-packages"),
            component("pkg:conda/cudnn@9.1.0?build=0&channel=nvidia", "/opt/conda/conda-meta/cudnn-9.1.0-0.json"),
            component("pkg:conda/pytorch@2.4.0?build=py3.12_cuda12.4_cudnn9.1.0_0", "/opt/conda/conda-meta/p.json"),
            component("pkg:npm/left-pad@1.0.0", "/app/package-lock.json"),
        ],
    )
    assert [item.origin for item in found] == ["bom.json (/opt/conda)", "bom.json (/usr)", "bom.json (/usr/local)"]
    conda, debian, local = found
    assert versions(conda) == {"torch": "2.4.0"}
    assert conda.components["cudnn"].version == "9.1.0"
    assert conda.facts["runtime.torch_cuda"][0] == "12.4"
    assert conda.python == "3.12"
    assert versions(debian) == {"numpy": "1.24.2"}
    assert versions(local) == {"torch": "2.5.1", "numpy": "1.26.4"}
    assert local.python == "3.11"
    assert all(item.complete for item in found)


def test_copies_inside_packages_are_not_counted() -> None:
    (environment,) = build_environments(
        "bom.json",
        [
            pypi("setuptools", "75.0.0"),
            pypi("packaging", "24.2", f"/{SITE}/setuptools/_vendor"),
            pypi("aiohttp", "3.9", f"/{SITE}/ray/thirdparty_files/lib/python3.11/site-packages"),
            component("pkg:pypi/flask@1.0", f"/{SITE}/examples/requirements.txt"),
        ],
    )
    assert versions(environment) == {"setuptools": "75.0.0"}
    assert any("aiohttp, flask, packaging" in note for note in environment.notes)


def test_debian_looks_into_two_directories() -> None:
    (environment,) = build_environments(
        "bom.json",
        [
            pypi("torch", "2.5.1", "/usr/local/lib/python3.10/dist-packages"),
            component("pkg:pypi/six@1.16.0", "/usr/lib/python3/dist-packages/six-1.16.0.egg-info"),
            component("pkg:deb/ubuntu/python3.10@3.10.12-1~22.04.7"),
        ],
    )
    assert versions(environment) == {"torch": "2.5.1", "six": "1.16.0"}
    assert environment.python == "3.10.12"


def test_the_interpreter_beside_the_packages_is_exact() -> None:
    (environment,) = build_environments(
        "bom.json",
        [
            pypi("torch", "2.5.1"),
            component("pkg:generic/python@3.12.1", "/opt/other/bin/python3.12"),
            component("pkg:generic/python@3.11.9", "/usr/local/bin/python3.11"),
        ],
    )
    assert environment.python == "3.11.9"


def test_without_locations_nothing_is_known_to_be_absent() -> None:
    parts = [component("pkg:pypi/torch@2.5.1"), component("pkg:pypi/numpy@1.26.4"), component("pkg:pypi/numpy@2.0.0")]
    (environment,) = build_environments("bom.json", parts)
    assert not environment.complete
    assert environment.packages["numpy"].specifier == "==1.26.4 || ==2.0.0"
    assert not environment.damage
    assert any(note.startswith("numpy: 1.26.4 and 2.0.0") for note in environment.notes)
    (stated,) = build_environments("bom.json", parts[:1], complete=True)
    assert stated.complete


def test_two_versions_in_one_directory_are_damage() -> None:
    (environment,) = build_environments(
        "bom.json", [pypi("torch", "2.5.1"), pypi("torch", "2.4.0"), pypi("torch", "2.4.0")]
    )
    assert [item.kind for item in environment.damage] == ["duplicated"]
    assert environment.packages["torch"].version is None


def test_manifests_are_not_environments_that_are_complete() -> None:
    found = build_environments(
        "bom.json",
        [component("pkg:pypi/torch@2.5.1", "requirements.txt"), component("pkg:pypi/torch@2.4.0", "/app/uv.lock")],
    )
    assert [(item.origin, item.complete) for item in found] == [
        ("bom.json (/app/uv.lock)", False),
        ("bom.json (/requirements.txt)", False),
    ]


def test_markers_of_uv_choose_for_linux() -> None:
    parts = [
        component("pkg:pypi/torch@2.5.1"),
        component("pkg:pypi/colorama@0.4.6", marker="sys_platform == 'win32'"),
        component("pkg:pypi/triton@3.1.0", marker="sys_platform == 'linux'"),
        component("pkg:pypi/odd@1", marker="nonsense("),
    ]
    (environment,) = build_environments("bom.json", parts)
    assert set(environment.packages) == {"torch", "triton", "odd"}


@pytest.mark.parametrize(
    ("torch", "counted"),
    [("2.5.1+cu124", False), ("2.5.1", False), ("2.9.0a0+50eac811a6.nv25.09", True), (None, True)],
)
def test_system_cuda_counts_where_torch_loads_it(torch: str | None, counted: bool) -> None:  # noqa: FBT001 (a table)
    parts = [
        pypi("numpy", "1.26.4"),
        component("pkg:deb/ubuntu/cuda-cudart-12-4@12.4.127-1"),
        component("pkg:deb/ubuntu/libcudnn9-cuda-12@9.1.0.70-1"),
        component("pkg:rpm/rhel/libnccl@2.21.5-1%2Bcuda12.4"),
        component("pkg:deb/ubuntu/libcublas-12-4@12.4.5.8-1"),
    ]
    if torch is not None:
        parts.append(pypi("torch", torch.replace("+", "%2B")))
    (environment,) = build_environments("bom.json", parts)
    found = {name: item.version for name, item in environment.components.items()}
    expected = {"cuda": "12.4.127", "cudnn": "9.1.0.70", "nccl": "2.21.5", "cublas": "12.4.5.8"}
    if counted:
        assert found == expected
    else:
        assert not set(found) & {"cudnn", "nccl", "cublas"}
        assert any("system packages" in note for note in environment.notes)


def test_ranges_of_a_dependency_graph_are_ranges() -> None:
    parts = [SbomComponent("torch", ">= 2.0, < 3", Source("b"), parse_purl("pkg:pypi/torch"))]
    parts.append(SbomComponent("trl", "latest-ish", Source("b"), parse_purl("pkg:pypi/trl")))
    (environment,) = build_environments("b", parts)
    assert environment.packages["torch"].specifier == ">=2.0,<3"
    assert [entry.reason for entry in environment.skipped] == ["'latest-ish', the version of trl, is no version"]


def test_no_python_package_is_an_error() -> None:
    with pytest.raises(InputError, match="lists 1 component, none of them a Python package: npm"):
        build_environments("bom.json", [component("pkg:npm/left-pad@1.0.0")])


def test_every_release_of_one_package_is_compared_once() -> None:
    def spend(count: int) -> float:
        listed = [component(f"pkg:pypi/torch@0.{n}") for n in range(count)]
        started = time.process_time()
        (environment,) = build_environments("bom.json", [*listed, *listed])
        assert (environment.packages["torch"].specifier or "").count("||") == count - 1
        return time.process_time() - started

    # eight times the releases; comparing all of them with each would cost sixty-four times
    assert min(spend(8_000) for _ in range(2)) < 20 * min(spend(1_000) for _ in range(3))
