"""Locks of conda-lock give one environment for each Linux platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.conda.lock import read_conda_lock
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Choice, Selection

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = """\
- name: {name}
  version: {version}
  manager: {manager}
  platform: {platform}
  dependencies: {{}}
  url: {url}
  hash: {{md5: 00}}
  category: {category}
  optional: false
"""
CONDA = "https://conda.anaconda.org/conda-forge/{platform}/{name}-{version}-{build}.conda"


def entry(name: str, version: str, build: str, platform: str = "linux-64", category: str = "main") -> str:
    url = CONDA.format(platform=platform, name=name, version=version, build=build)
    return ENTRY.format(
        name=name, version=f"'{version}'", manager="conda", platform=platform, url=url, category=category
    )


def write(folder: Path, *entries: str, head: str = "version: 1\n") -> str:
    path = folder / "conda-lock.yml"
    path.write_text(f"{head}package:\n{''.join(entries)}")
    return str(path)


def test_one_environment_for_each_linux(tmp_path: Path) -> None:
    wheel = "https://download.example/torchao-0.6.1%2Bcu124-cp311-cp311-linux_x86_64.whl"
    path = write(
        tmp_path,
        entry("python", "3.11.10", "hc5c86c4_3_cpython"),
        entry("pytorch", "2.5.1", "cuda126_py311h1_300"),
        entry("cuda-cudart", "12.6.77", "h1_0"),
        entry("ipython", "8.0.0", "pyhd8ed1ab_0", category="dev"),
        entry("mypy", "1.0.0", "py311h1_0", category="types"),
        ENTRY.format(name="torchao", version="0.6.1", manager="pip", platform="linux-64", url=wheel, category="main"),
        entry("python", "3.11.10", "hc5c86c4_3_cpython", "linux-aarch64"),
        entry("pytorch", "2.5.1", "cpu_generic_py311h1_0", "linux-aarch64"),
        entry("pytorch", "2.5.1", "cpu_generic_py311h1_0", "osx-arm64"),
    )
    first, second = read_conda_lock(path)
    assert (first.origin, second.origin) == (f"{path} (linux-64)", f"{path} (linux-aarch64)")
    versions = {name: package.version for name, package in first.packages.items() if not package.is_optional}
    assert versions == {"torch": "2.5.1", "ipython": "8.0.0", "torchao": "0.6.1"}
    assert first.facts["runtime.torch_cuda"][0] == "12.6"
    assert second.facts["runtime.torch_build"][0] == "cpu"
    assert first.complete
    assert second.complete
    assert first.python == "3.11.10"
    assert "also locked, and not looked at: osx-arm64" in first.notes
    assert first.packages["mypy"].is_optional
    assert first.packages["mypy"].brought_by == (Choice("extra", "types"),)
    assert first.offered == {Choice("extra", "types")}
    chosen, _ = read_conda_lock(path, selection=Selection(extras=("types",)))
    assert not chosen.packages["mypy"].is_optional
    lines = (tmp_path / "conda-lock.yml").read_text().splitlines()
    assert lines[(first.packages["torch"].source.line or 0) - 1] == "- name: pytorch"


def test_what_cannot_be_read_leaves_the_rest_but_not_complete(tmp_path: Path) -> None:
    (environment,) = read_conda_lock(write(tmp_path, entry("pytorch", "2.5.1", "py311_0"), "- name: x\n", "- 3\n"))
    assert set(environment.packages) == {"torch"}
    assert not environment.complete
    assert len(environment.skipped) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version: 1\npackage: 3\n", "no list of packages"),
        ("version: 9\npackage: []\n", "version '9'"),
        ("version: 1\npackage: []\n", "no platform"),
        ("version: 1\npackage:\n" + entry("a", "1", "h", "win-64"), "win-64, and neither linux-64 nor linux-aarch64"),
    ],
)
def test_locks_for_others_are_errors(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as error:
        read_conda_lock(str(path))
    assert error.value.hint
