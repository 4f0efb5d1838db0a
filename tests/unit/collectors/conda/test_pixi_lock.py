"""Locks of pixi give one environment for each name and Linux platform, in every version of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.conda.pixi_lock import read_pixi_lock
from compatcheck.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

TORCH = "https://conda.anaconda.org/conda-forge/linux-64/pytorch-2.5.1-cuda126_py311h1_300.conda"
PYTHON = "https://conda.anaconda.org/conda-forge/linux-64/python-3.11.10-hc5c86c4_3_cpython.conda"
WHEEL = "https://files.example/deepspeed-0.16.0-py3-none-any.whl"
HEAD = f"""\
environments:
  default:
    channels:
    - url: https://conda.anaconda.org/conda-forge/
    packages:
      linux-64:
      - conda: {PYTHON}
      - conda: {TORCH}
      - pypi: {WHEEL}
      - pypi: ./
      osx-arm64:
      - pypi: {WHEEL}
  cpu:
    packages:
      linux-64:
      - pypi: {WHEEL}
packages:
"""
VERSION_6 = f"""\
version: 6
{HEAD}- conda: {PYTHON}
  sha256: 00
- conda: {TORCH}
  purls: [pkg:pypi/torch]
- pypi: {WHEEL}
  name: deepspeed
  version: 0.16.0
- pypi: ./
  name: my-train
  version: 0.1.0
  editable: true
"""


def test_environments_of_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(VERSION_6)
    default, cpu = read_pixi_lock(str(path))
    assert (default.origin, cpu.origin) == (f"{path} (default, linux-64)", f"{path} (cpu, linux-64)")
    versions = {name: package.version for name, package in default.packages.items()}
    assert versions == {"torch": "2.5.1", "deepspeed": "0.16.0", "my-train": "0.1.0"}
    assert default.packages["my-train"].details["editable"] == "true"
    assert default.python == "3.11.10"
    assert default.facts["runtime.torch_cuda"][0] == "12.6"
    assert default.complete
    assert set(cpu.packages) == {"deepspeed"}
    assert "also locked, and not looked at: osx-arm64" in default.notes


def test_version_7_names_its_platforms(tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(
        "version: 7\nplatforms:\n- name: gpu-box\n  subdir: linux-64\n- name: win-64\nenvironments:\n  default:\n"
        f"    packages:\n      gpu-box:\n      - conda: {TORCH}\n      - conda_source: tool[ab12] @ ./tool\n      win-64: []\n"
        f"packages:\n- conda: {TORCH}\n- conda_source: tool[ab12] @ ./tool\n  version: 0.1.0\n  build: pyh_0\n"
    )
    (environment,) = read_pixi_lock(str(path))
    assert environment.origin == f"{path} (default, gpu-box)"
    assert {name: package.version for name, package in environment.packages.items()} == {
        "torch": "2.5.1",
        "tool": "0.1.0",
    }


def test_sources_of_one_directory_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(
        "version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n      - conda: ../src\n        name: b\n"
        "packages:\n- conda: ../src\n  name: a\n  version: 1\n- conda: ../src\n  name: b\n  version: 2\n"
    )
    (environment,) = read_pixi_lock(str(path))
    assert {name: package.version for name, package in environment.packages.items()} == {"b": "2"}


def test_purls_decide_what_is_a_distribution(tmp_path: Path) -> None:
    library = TORCH.replace("pytorch-2.5.1", "some-library-1.0")
    text = VERSION_6.replace(f"      - conda: {TORCH}\n", f"      - conda: {TORCH}\n      - conda: {library}\n")
    path = tmp_path / "pixi.lock"
    path.write_text(f"{text}- conda: {library}\n  purls: []\n")
    assert "some-library" not in read_pixi_lock(str(path))[0].packages
    path.write_text(f"{text}- conda: {library}\n  purls: ['pkg:pypi/Some.Name?source=hash-mapping']\n")
    assert read_pixi_lock(str(path))[0].packages["some-name"].version == "1.0"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version: 6\n", "no environments"),
        ("version: 99\nenvironments: {}\n", "version '99'"),
        ("version: 5\nenvironments: {}\n", "version '5'; versions 6, 7 are understood"),
        ("version: 1\npackage: []\n", "version '1'"),
        ("version: 6\nenvironments:\n  default:\n    packages:\n      win-64: []\n", "win-64"),
        ("version: 6\nenvironments: {}\npackages: []\n", "no platform"),
    ],
)
def test_what_is_no_lock_for_linux_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_pixi_lock(str(path))


def test_a_package_without_description_leaves_it_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(
        VERSION_6.replace("  name: deepspeed\n  version: 0.16.0\n", "").replace(f"- pypi: {WHEEL}\n- pypi", "- pypi")
    )
    default = read_pixi_lock(str(path))[0]
    assert not default.complete
    assert "deepspeed" not in default.packages
