"""Pipfile states ranges, Pipfile.lock the pins of its sections."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.collectors.locks.pipfile import read_pipfile
from compatcheck.collectors.locks.pipfile_lock import read_pipfile_lock
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Choice, Selection
from tests import ROOT
from tests.unit.collectors.certain import certain

PROJECT = ROOT / "fixtures" / "environments" / "pipenv-project"


def _lock(tmp_path: Path, default: object, **more: object) -> str:
    path = tmp_path / "Pipfile.lock"
    path.write_text(json.dumps({"_meta": {"pipfile-spec": 6, **more}, "default": default, "develop": {}}, indent=4))
    return str(path)


def test_the_default_section_is_what_is_installed() -> None:
    path = PROJECT / "Pipfile.lock"
    environment = read_pipfile_lock(str(path))
    assert environment.complete
    assert environment.packages["requests"].details["extras"] == "socks"
    assert "iniconfig" not in certain(environment)
    assert "sections not selected: develop" in environment.notes
    assert "iniconfig" in certain(read_pipfile_lock(str(path), selection=Selection(groups=("develop",))))
    lines = path.read_text().split("\n")
    for name, package in environment.packages.items():
        assert (package.version is None) == (name == "colorama")  # pipenv itself lost its marker and its pin
        assert package.source.line is not None
        assert lines[package.source.line - 1].strip() == f'"{name}": {{'


def test_the_python_of_the_lock_decides_markers(tmp_path: Path) -> None:
    entries = {
        "a": {"version": "==1.0", "markers": "python_version < '3.8'"},
        "b": {"version": "==1.0", "markers": "python_version >= '3.8'"},
    }
    assert set(read_pipfile_lock(_lock(tmp_path, entries, requires={"python_version": "3.7"})).packages) == {"a"}
    assert set(read_pipfile_lock(_lock(tmp_path, entries, requires={"python_full_version": "3.9.1"})).packages) == {"b"}
    path = _lock(tmp_path, entries, requires={"python_version": "3.7"})
    assert set(read_pipfile_lock(path, selection=Selection(python="3.12.1")).packages) == {"b"}


def test_origins_of_locked_packages(tmp_path: Path) -> None:
    entries = {
        "a": {"git": "https://u:p@git.example/a.git", "ref": "abc"},
        "b": {"editable": True, "path": "."},
        "flash-attn": {"file": "https://files.example/flash_attn-2.7.4-cp311-cp311-linux_x86_64.whl"},
        "c": {"version": "==1.0+cu124", "index": "private", "platform_machine": "== 'x86_64'"},
        "d": {"version": "==1.0", "sys_platform": "== 'win32'"},
    }
    sources = [{"name": "private", "url": "https://u:p@index.example/whl/cu124"}]
    packages = read_pipfile_lock(_lock(tmp_path, entries, sources=sources)).packages
    assert packages["a"].details["direct_url"] == "https://[redacted]@git.example/a.git"
    assert (packages["a"].version, packages["a"].specifier, packages["a"].details["revision"]) == (None, "", "abc")
    assert packages["b"].details["editable"] == "true"
    assert packages["flash-attn"].version == "2.7.4"
    assert (packages["c"].version, packages["c"].details["index"]) == (
        "1.0+cu124",
        "https://[redacted]@index.example/whl/cu124",
    )
    assert "d" not in packages


@pytest.mark.parametrize("entry", [1, None, [], {"version": 1}, {"version": ">=1"}, {"version": "==1", "markers": 1}])
def test_odd_entries_are_reported_and_do_not_lose_the_others(tmp_path: Path, entry: object) -> None:
    environment = read_pipfile_lock(_lock(tmp_path, {"odd": entry, "a": {"version": "==1.0"}}))
    assert environment.packages["a"].version == "1.0"
    assert [skipped.source.line for skipped in environment.skipped] == [6]
    assert not environment.complete


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "has no _meta"),
        ('{"_meta": {"pipfile-spec": 7}}', "pipfile-spec '7'"),
        ('{"_meta": {"pipfile-spec": [[]]}}', "pipfile-spec an array"),
        ('{"_meta": {},\n "a": 1, "a": 2}', "'a' twice"),
        ('{"_meta":\n {', "Pipfile.lock:2"),
        ("[" * 200_000, "nested more than"),
        ("", "is empty"),
    ],
)
def test_malformed_locks_name_the_place(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "Pipfile.lock"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_pipfile_lock(str(path))


def test_pipfile_states_ranges(tmp_path: Path) -> None:
    environment = read_pipfile(str(PROJECT / "Pipfile"))
    assert not environment.complete
    assert environment.packages["numpy"].specifier == ">=2.3"
    assert environment.packages["numpy"].source.line == 8
    assert "colorama" not in environment.packages
    assert environment.packages["iniconfig"].brought_by == (Choice("group", "dev-packages"),)
    assert "sections not selected: dev-packages" in environment.notes
    path = tmp_path / "Pipfile"
    path.write_text(
        '[packages]\ntorch = "==2.6.0"\nany = "*"\nplain = "1.2"\nrepo = {git = "https://git.example/r", ref = "v1"}\n'
        'bad = "=>1"\nworse = 3\n[gpu]\ntriton = "*"\n'
    )
    environment = read_pipfile(str(path), selection=Selection(groups=("gpu",)))
    pins = {name: package.version or package.specifier for name, package in environment.packages.items()}
    assert pins == {"torch": "2.6.0", "any": "", "plain": "1.2", "repo": "", "triton": ""}
    assert environment.packages["repo"].details["revision"] == "v1"
    assert [(entry.source.key, entry.source.line) for entry in environment.skipped] == [
        ("packages.bad", 6),
        ("packages.worse", 7),
    ]
