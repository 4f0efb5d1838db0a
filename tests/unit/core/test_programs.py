"""Which programs may be started: none of what is inspected, of the working directory, or of an environment that is active."""

from __future__ import annotations

import os
import sys
from contextvars import copy_context
from pathlib import Path

import pytest

from compatcheck.core import programs
from compatcheck.core.programs import Program, distrust, find_program, small_environment, trusted_path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")


def add(folder: Path, name: str = "tool") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty directory beside what the tests make."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return tmp_path


def find(*folders: Path | str, **variables: str) -> Program:
    return find_program("tool", {"PATH": os.pathsep.join(map(str, folders)), **variables})


def test_the_first_on_the_path_is_found(elsewhere: Path) -> None:
    first, second = add(elsewhere / "a"), add(elsewhere / "b")
    assert find(first.parent, second.parent) == Program("tool", str(first))
    assert find(elsewhere / "none", second.parent).path == str(second)
    assert find(elsewhere / "none") == Program("tool", None)
    assert find().describe_absence() == "there is no tool"


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta", "VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_environment_is_passed_over(elsewhere: Path, mark: str) -> None:
    there, good = add(elsewhere / "env/bin"), add(elsewhere / "good")
    active = {mark: str(elsewhere / "env")} if mark.isupper() else {}
    if not active:
        (elsewhere / "env" / mark).mkdir()
    assert find(there.parent, good.parent, **active) == Program("tool", str(good))
    alone = find(there.parent, **active)
    assert alone == Program("tool", None, str(there))
    assert alone.describe_absence().startswith(f"{there} is not run: it lies in an environment")


@pytest.mark.parametrize("folder", ["", ".", "bin", "../empty/bin"])
def test_what_the_working_directory_decides_is_passed_over(elsewhere: Path, folder: str) -> None:
    add(elsewhere / "empty")
    add(elsewhere / "empty/bin")
    assert find(folder).path is None


def test_the_working_directory_is_passed_over_and_the_root_is_none(elsewhere: Path, monkeypatch) -> None:
    inside, outside = add(elsewhere / "empty/deep/bin"), add(elsewhere / "bin")
    assert find(inside.parent, outside.parent).path == str(outside)
    monkeypatch.chdir("/")
    assert find(inside.parent).path == str(inside)


@pytest.mark.parametrize("named", [True, False])
def test_the_whole_checkout_is_passed_over(elsewhere: Path, monkeypatch, named) -> None:
    inside, outside = add(elsewhere / "repo/tools"), add(elsewhere / "bin")
    (elsewhere / "repo/.git").mkdir()
    deep = elsewhere / "repo/a/b"
    deep.mkdir(parents=True)
    if named:
        copy_context().run(_find_inside, deep, inside.parent, outside.parent)
    else:
        monkeypatch.chdir(deep)
        assert find(inside.parent, outside.parent).path == str(outside)


def _find_inside(inspected: Path, *folders: Path) -> None:
    distrust(str(inspected / "requirements.txt"))
    assert find(*folders).path == str(folders[1] / "tool")


def test_a_link_into_what_is_inspected_is_passed_over(elsewhere: Path) -> None:
    inside = add(elsewhere / "empty/bin")
    (elsewhere / "links").mkdir()
    (elsewhere / "links/tool").symlink_to(inside)
    (elsewhere / "folder").symlink_to(inside.parent)
    assert find(elsewhere / "links", elsewhere / "folder").path is None


@pytest.mark.parametrize("named", ["checkout", "checkout/requirements.txt"])
def test_what_is_inspected_is_passed_over(elsewhere: Path, named: str) -> None:
    there = add(elsewhere / "checkout/bin")
    (elsewhere / "checkout/requirements.txt").touch()

    def look() -> None:
        assert find(there.parent).path == str(there)
        distrust(str(elsewhere / named), "-")
        assert find(there.parent) == Program("tool", None, str(there))

    copy_context().run(look)


def test_a_persons_own_programs_are_found_from_the_home_directory(elsewhere: Path, monkeypatch) -> None:
    home = elsewhere / "home"
    own, other = add(home / ".local/bin"), add(home / "project/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    assert find(other.parent, own.parent).path == str(own)
    monkeypatch.chdir(home / ".local")
    assert find(own.parent).path is None


def test_the_own_installation_is_asked_first_where_it_may_be(elsewhere: Path, monkeypatch) -> None:
    own, other = add(elsewhere / "venv/bin"), add(elsewhere / "bin")
    (elsewhere / "venv/pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(elsewhere / "venv"))
    monkeypatch.setenv("VIRTUAL_ENV", str(elsewhere / "venv"))
    assert find(other.parent).path == str(own)
    for path in (str(own.parent), ""):
        assert find_program("tool", {"PATH": path}, own=False).path is None
    assert find(own.parent).path == str(own)


def test_children_get_few_variables_and_trusted_folders_alone(elsewhere: Path) -> None:
    inside = elsewhere / "empty"
    given = {
        "HOME": "/root",
        "https_proxy": "http://p",
        "PIP_INDEX_URL": "https://i",
        "UV_CACHE_DIR": "/c",
        "VIRTUAL_ENV": "/v",
        "PYTHONPATH": "/p",
        "PYTHONSTARTUP": "/p",
        "LD_PRELOAD": "/x.so",
        "BASH_ENV": "/x",
        "PATH": os.pathsep.join((str(inside), ".", "", "/v/bin", "/usr/bin")),
        "LD_LIBRARY_PATH": os.pathsep.join((str(inside), "/v/lib", "/usr/local/nvidia/lib64")),
    }
    kept = {name: given[name] for name in ("HOME", "https_proxy", "PIP_INDEX_URL", "UV_CACHE_DIR")}
    assert small_environment(given) == {**kept, "PATH": "/usr/bin", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
    assert small_environment({"CC": "cc", "X": "1"}, more="CC") == {"CC": "cc"}
    assert small_environment({"PATH": str(inside)}) == {}


def test_a_deleted_working_directory_holds_nothing(elsewhere: Path, monkeypatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(programs.os, "getcwd", gone)
    assert trusted_path(str(elsewhere)) == str(elsewhere)
