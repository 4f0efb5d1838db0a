"""Locks of poetry are selected as poetry installs them: by groups and markers, or by following the project's requirements."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.locks.poetry_lock import read_poetry_lock
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Selection
from tests import ROOT
from tests.unit.collectors.certain import certain

FIXTURE = ROOT / "fixtures" / "environments" / "poetry-project" / "poetry.lock"

V20 = """\
[[package]]
name = "torch"
version = "2.6.0"
description = ""
optional = false
python-versions = ">=3.9"
files = []

[package.dependencies]
filelock = "*"
colorama = {version = "*", markers = "sys_platform == \\"win32\\""}
numpy = {version = ">=1.21,<3", optional = true}

[package.extras]
opt = ["numpy (>=1.21,<3)"]

[[package]]
name = "filelock"
version = "3.1"
optional = false
python-versions = "*"

[[package]]
name = "colorama"
version = "0.4"
optional = false
python-versions = "*"

[[package]]
name = "numpy"
version = "1.26.4"
optional = false
python-versions = ">=3.9"

[[package]]
name = "numpy"
version = "2.2.0"
optional = false
python-versions = ">=3.10"

[[package]]
name = "pytest"
version = "8.0"
optional = false
python-versions = "*"

[extras]
fast = ["numpy"]

[metadata]
lock-version = "2.0"
python-versions = "^3.9"
content-hash = "x"
"""


def _write(tmp_path: Path, lock: str, project: str | None = None) -> str:
    path = tmp_path / "poetry.lock"
    path.write_text(lock)
    if project is not None:
        tmp_path.joinpath("pyproject.toml").write_text("[tool.poetry]\nname = 'x'\n" + project)
    return str(path)


def _pins(environment: Environment) -> dict[str, str | None]:
    return {name: package.version for name, package in certain(environment).items()}


@pytest.mark.parametrize(("python", "numpy"), [("3.10.4", "2.2."), ("3.13.1", "2.5.")])
def test_lock_2_1_is_selected_by_group_and_marker(python: str, numpy: str) -> None:
    environment = read_poetry_lock(str(FIXTURE), selection=Selection(python=python))
    pins = _pins(environment)
    assert environment.complete
    assert environment.python == python
    assert (pins["numpy"] or "").startswith(numpy)
    assert pins["pysocks"] == "1.7.1"
    assert not {"colorama", "iniconfig", "tqdm"} & set(pins)
    assert "groups not selected: dev" in environment.notes
    assert "extras not selected: progress" in environment.notes


def test_extras_and_groups_are_selected() -> None:
    environment = read_poetry_lock(str(FIXTURE), selection=Selection(extras=("Progress",), groups=("dev",)))
    assert {"tqdm", "iniconfig"} <= set(certain(environment))
    assert "colorama" not in environment.packages


def test_lines_and_the_index() -> None:
    environment = read_poetry_lock(str(FIXTURE), selection=Selection(python="3.12.4"))
    lines = FIXTURE.read_text().split("\n")
    for package in environment.packages.values():
        assert package.source.line is not None
        assert lines[package.source.line - 1] == f'name = "{package.source.key.removeprefix("package.")}"'  # type: ignore[union-attr]
        assert lines[package.source.line] == f'version = "{package.version}"'
        assert package.details["index"] == "https://index.example/simple"


def test_lock_2_0_starts_from_the_project_beside_it(tmp_path: Path) -> None:
    project = '[tool.poetry.dependencies]\npython = "^3.9"\ntorch = "^2.6"\n[tool.poetry.group.dev.dependencies]\npytest = "*"\n'
    environment = read_poetry_lock(_write(tmp_path, V20, project))
    assert _pins(environment) == {"torch": "2.6.0", "filelock": "3.1"}
    assert "groups not selected: dev" in environment.notes


def test_lock_2_0_versions_differ_by_the_requirement(tmp_path: Path) -> None:
    project = (
        '[tool.poetry.dependencies]\npython = "^3.9"\n'
        'torch = {version = "^2.6", extras = ["opt"]}\n'
        'numpy = [{version = "<2", python = "<3.12"}, {version = ">=2", python = ">=3.12"}]\n'
    )
    path = _write(tmp_path, V20, project)
    for python, version in (("3.9.2", "1.26.4"), ("3.11.2", "1.26.4"), ("3.12.1", "2.2.0")):
        found = read_poetry_lock(path, selection=Selection(python=python)).packages["numpy"]
        assert found.version == version  # the range of the extra allows both, that of the project only one
    joined = read_poetry_lock(path).packages["numpy"]
    assert joined.specifier == "==1.26.4 || ==2.2.0"


def test_lock_2_0_without_a_project_takes_everything_and_says_so(tmp_path: Path) -> None:
    environment = read_poetry_lock(_write(tmp_path, V20))
    assert set(environment.packages) == {"torch", "filelock", "colorama", "numpy", "pytest"}
    assert environment.packages["numpy"].specifier == "==1.26.4 || ==2.2.0"
    assert any("no pyproject.toml beside it" in note for note in environment.notes)


def test_lock_1_1_without_a_project_goes_by_category(tmp_path: Path) -> None:
    entry = '[[package]]\nname = "{0}"\nversion = "1.0"\ncategory = "{1}"\noptional = {2}\npython-versions = "*"\n'
    text = "".join(entry.format(*one) for one in (("a", "main", "false"), ("b", "dev", "false"), ("c", "main", "true")))
    environment = read_poetry_lock(_write(tmp_path, text + '[metadata]\nlock-version = "1.1"\n'))
    assert set(certain(environment)) == {"a"}
    assert set(certain(read_poetry_lock(str(tmp_path / "poetry.lock"), selection=Selection(groups=("dev",))))) == {
        "a",
        "b",
    }


def test_sources_are_described_without_credentials(tmp_path: Path) -> None:
    text = (
        '[[package]]\nname = "a"\nversion = "1.0"\noptional = false\ngroups = ["main"]\ndevelop = true\n'
        '[package.source]\ntype = "git"\nurl = "https://me:pass@git.example/a.git"\nreference = "v1"\nresolved_reference = "ab"\n'
        '[[package]]\nname = "b"\nversion = "2.0"\noptional = false\ngroups = ["main"]\n'
        '[package.source]\ntype = "directory"\nurl = "../b"\n'
        '[metadata]\nlock-version = "2.1"\n'
    )
    packages = read_poetry_lock(_write(tmp_path, text)).packages
    assert packages["a"].details == {
        "source": "git",
        "direct_url": "https://[redacted]@git.example/a.git",
        "vcs": "git",
        "revision": "v1",
        "editable": "true",
    }
    assert (packages["b"].version, packages["b"].details["direct_url"]) == ("2.0", "../b")


def test_markers_of_several_groups_are_joined(tmp_path: Path) -> None:
    text = (
        '[[package]]\nname = "a"\nversion = "1.0"\noptional = false\ngroups = ["main", "dev"]\n'
        "markers = {main = \"sys_platform == 'win32'\", dev = \"sys_platform == 'linux'\"}\n"
        '[metadata]\nlock-version = "2.1"\n'
    )
    path = _write(tmp_path, text)
    assert not certain(read_poetry_lock(path))
    assert set(certain(read_poetry_lock(path, selection=Selection(groups=("dev",))))) == {"a"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[metadata]\nlock-version = "3.0"\n', "lock-version '3.0'"),
        ("[metadata]\nlock-version = 2\n", "lock-version"),
        ('package = 1\n[metadata]\nlock-version = "2.1"\n', r"no \[\[package\]\]"),
        ('[[package]]\nname = "a"\nname = "a"\n', "poetry.lock:3"),
        ("", "is empty"),
    ],
)
def test_malformed_locks_name_the_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_poetry_lock(_write(tmp_path, text))


@pytest.mark.parametrize("entry", ["version = '1'", "name = 'b'\nversion = 1", "name = 'b'\nversion = 'x y'"])
def test_odd_entries_are_reported_and_do_not_lose_the_others(tmp_path: Path, entry: str) -> None:
    text = f"[[package]]\n{entry}\ngroups = ['main']\n[[package]]\nname = 'a'\nversion = '1'\ngroups = ['main']\n"
    environment = read_poetry_lock(_write(tmp_path, text + "[metadata]\nlock-version = '2.1'\n"))
    assert environment.packages["a"].version == "1"
    assert len(environment.skipped) == 1
    assert not environment.complete
