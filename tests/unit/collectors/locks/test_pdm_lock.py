"""Locks of pdm are selected as pdm installs them, with and without the strategy inherit_metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.locks.pdm_lock import read_pdm_lock
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Selection
from tests import ROOT
from tests.unit.collectors.certain import certain

FIXTURE = ROOT / "fixtures" / "environments" / "pdm-project" / "pdm.lock"

HEAD = '[metadata]\ngroups = ["default", "dev"]\nstrategy = []\nlock_version = "4.4"\n'
WALKED = (
    HEAD
    + """
[[package]]
name = "requests"
version = "2.31.0"
summary = ""
dependencies = ["idna<4", "colorama; sys_platform == 'win32'"]

[[package]]
name = "requests"
version = "2.31.0"
extras = ["socks"]
summary = ""
dependencies = ["PySocks!=1.5.7", "requests==2.31.0"]

[[package]]
name = "idna"
version = "3.4"

[[package]]
name = "pysocks"
version = "1.7.1"

[[package]]
name = "colorama"
version = "0.4.6"

[[package]]
name = "pytest"
version = "8.0"
"""
)


def _write(tmp_path: Path, lock: str, project: str | None = None) -> str:
    path = tmp_path / "pdm.lock"
    path.write_text(lock)
    if project is not None:
        tmp_path.joinpath("pyproject.toml").write_text(project)
    return str(path)


def _pins(environment: Environment) -> dict[str, str | None]:
    return {name: package.version for name, package in certain(environment).items()}


@pytest.mark.parametrize(("python", "numpy"), [("3.11.4", "2.2."), ("3.12.1", "2.5.")])
def test_entries_are_selected_by_group_and_marker(python: str, numpy: str) -> None:
    environment = read_pdm_lock(str(FIXTURE), selection=Selection(python=python))
    pins = _pins(environment)
    assert environment.complete
    assert (pins["numpy"] or "").startswith(numpy)
    assert {"requests", "pysocks", "urllib3"} <= set(pins)
    assert not {"colorama", "iniconfig", "tqdm"} & set(pins)
    assert "groups not selected: dev, progress" in environment.notes
    assert {"tqdm"} < set(certain(read_pdm_lock(str(FIXTURE), selection=Selection(extras=("progress",)))))


def test_targets_narrow_an_unknown_python() -> None:
    packages = read_pdm_lock(str(FIXTURE)).packages
    assert "marker" not in packages["requests"].details
    assert (packages["numpy"].specifier or "").startswith("==2.2.")
    assert " || ==2.5." in (packages["numpy"].specifier or "")


def test_a_lock_for_another_platform_is_said(tmp_path: Path) -> None:
    text = '[metadata]\nlock_version = "4.5.0"\n[[metadata.targets]]\nrequires_python = ">=3.9"\nplatform = "windows_amd64"\n'
    notes = read_pdm_lock(_write(tmp_path, text)).notes
    assert any("'windows_amd64' only, not for Linux" in note for note in notes)


def test_without_metadata_the_project_beside_it_is_followed(tmp_path: Path) -> None:
    project = '[project]\nname = "x"\ndependencies = ["requests[socks]>=2"]\n[dependency-groups]\ndev = ["pytest"]\n'
    path = _write(tmp_path, WALKED, project)
    assert _pins(read_pdm_lock(path)) == {"requests": "2.31.0", "idna": "3.4", "pysocks": "1.7.1"}
    assert "pytest" in certain(read_pdm_lock(path, selection=Selection(groups=("dev",))))
    without = read_pdm_lock(_write(tmp_path, WALKED, project.replace("[socks]", "")))
    assert set(certain(without)) == {"requests", "idna"}


def test_without_metadata_and_project_everything_counts(tmp_path: Path) -> None:
    environment = read_pdm_lock(_write(tmp_path, WALKED))
    assert set(environment.packages) == {"requests", "idna", "pysocks", "colorama", "pytest"}
    assert any("inherit_metadata" in note for note in environment.notes)


def test_origins_are_described(tmp_path: Path) -> None:
    text = HEAD + (
        '[[package]]\nname = "a"\nversion = "1.0"\ngroups = ["default"]\ngit = "https://u:p@git.example/a"\nref = "main"\n'
        'revision = "ab"\n'
        '[[package]]\nname = "b"\ngroups = ["default"]\npath = "./b"\neditable = true\n'
        '[[package]]\nname = "flash-attn"\ngroups = ["default"]\n'
        'url = "https://files.example/flash_attn-2.7.4-cp311-cp311-linux_x86_64.whl"\n'
    )
    packages = read_pdm_lock(_write(tmp_path, text)).packages
    assert packages["a"].details["direct_url"] == "https://[redacted]@git.example/a"
    assert packages["a"].details["revision"] == "main"
    assert (packages["b"].version, packages["b"].details["editable"]) == (None, "true")
    assert packages["flash-attn"].version == "2.7.4"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[metadata]\nlock_version = "3.1"\n', "lock_version '3.1'"),
        ("[metadata]\nlock_version = []\n", "lock_version an array"),
        ('package = "x"\n[metadata]\nlock_version = "4.4"\n', r"no \[\[package\]\]"),
    ],
)
def test_malformed_locks_name_the_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_pdm_lock(_write(tmp_path, text))


def test_odd_entries_are_reported_and_do_not_lose_the_others(tmp_path: Path) -> None:
    text = HEAD + (
        "[[package]]\nversion = '1'\n[[package]]\nname = 'b'\nversion = 2\n"
        "[[package]]\nname = 'a'\nversion = '1'\ndependencies = ['not a requirement!']\n"
    )
    environment = read_pdm_lock(_write(tmp_path, text))
    assert environment.packages["a"].version == "1"
    assert [entry.source.line for entry in environment.skipped] == [None, 8, 11]
    assert not environment.complete
