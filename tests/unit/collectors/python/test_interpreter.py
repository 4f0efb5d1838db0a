import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from compatcheck.collectors.python.interpreter import locate
from compatcheck.core.errors import InputError, UsageError
from tests.unit.collectors.python.layouts import ELF, add_dist, make_prefix, make_venv, site_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")


def imported(prefix, environ=None):
    """Directories a Python at ``prefix`` imports from, as far as rules tell."""
    return [os.path.relpath(path, prefix) for path in locate(None, str(prefix), environ or {}).site_packages]


def test_virtual_environment_by_its_interpreter(tmp_path):
    base = make_prefix(tmp_path / "base")
    prefix = make_venv(tmp_path / "venv", base)
    layout = locate(str(prefix / "bin" / "python"), None, {})
    assert layout.prefix == str(prefix)
    assert layout.site_packages == (str(site_of(prefix)),)
    assert layout.version == "3.11.7"
    assert layout.origin == str(prefix / "bin" / "python")
    assert layout.chosen == "--python"


def test_link_to_a_virtual_environment_from_outside_is_the_base_as_for_python_itself(tmp_path):
    base = make_prefix(tmp_path / "base")
    prefix = make_venv(tmp_path / "venv", base)
    link = tmp_path / "elsewhere" / "python"
    link.parent.mkdir()
    link.symlink_to(prefix / "bin" / "python")
    assert locate(str(link), None, {}).prefix == str(base)


def test_virtual_environment_reached_through_a_linked_directory(tmp_path):
    prefix = make_venv(tmp_path / "venv-1", make_prefix(tmp_path / "base"))
    (tmp_path / "current").symlink_to("venv-1")
    assert locate(str(tmp_path / "current" / "bin" / "python"), None, {}).prefix == str(tmp_path / "current")
    assert prefix.exists()


def test_system_packages_follow_those_of_the_environment(tmp_path):
    base = make_prefix(tmp_path / "base")
    prefix = make_venv(tmp_path / "venv", base, system=True)
    assert locate(None, str(prefix), {}).site_packages == (str(site_of(prefix)), str(site_of(base)))


def test_base_behind_links_is_found(tmp_path):
    base = make_prefix(tmp_path / "opt" / "cellar")
    (tmp_path / "local" / "bin").mkdir(parents=True)
    (tmp_path / "local" / "bin" / "python3").symlink_to(base / "bin" / "python3")
    prefix = make_venv(tmp_path / "venv", tmp_path / "local", system=True)
    assert locate(None, str(prefix), {}).site_packages == (str(site_of(prefix)), str(site_of(base)))


def test_system_packages_without_system_are_noted(tmp_path):
    prefix = make_venv(tmp_path / "venv", tmp_path / "gone", system=True)
    layout = locate(None, str(prefix), {})
    assert layout.site_packages == (str(site_of(prefix)),)
    assert "was not found" in layout.lost[0][1]


@pytest.mark.parametrize(("system", "counts"), [(False, False), (True, True), (None, True)])
def test_user_site_counts_as_python_counts_it(tmp_path, system, counts):
    base = make_prefix(tmp_path / "base")
    user = tmp_path / "home" / ".local" / "lib" / "python3.11" / "site-packages"
    user.mkdir(parents=True)
    prefix = base if system is None else make_venv(tmp_path / "venv", base, system=system)
    environ = {"HOME": str(tmp_path / "home")}
    layout = locate(None, str(prefix), environ)
    assert (str(user) in layout.site_packages) is counts
    if counts:
        assert str(user) in layout.notes[0]
        expected = [str(site_of(prefix)), str(user), str(site_of(base))] if system else [str(user), str(site_of(base))]
        assert list(layout.site_packages) == expected
    assert str(user) not in locate(None, str(prefix), {**environ, "PYTHONNOUSERSITE": "1"}).site_packages


def test_user_base_can_be_elsewhere(tmp_path):
    user = tmp_path / "base" / "lib" / "python3.11" / "site-packages"
    user.mkdir(parents=True)
    prefix = make_prefix(tmp_path / "python")
    assert str(user) in locate(None, str(prefix), {"PYTHONUSERBASE": str(tmp_path / "base")}).site_packages


def test_python_path_comes_first_and_apart(tmp_path):
    prefix = make_prefix(tmp_path / "python")
    shared = tmp_path / "shared"
    shared.mkdir()
    layout = locate(None, str(prefix), {"PYTHONPATH": f"{shared}{os.pathsep}{tmp_path}/gone{os.pathsep}"})
    assert layout.python_path == (str(shared),)


def test_debian(tmp_path):
    prefix = make_prefix(tmp_path / "usr")
    for folder in ("local/lib/python3.11/dist-packages", "lib/python3/dist-packages"):
        (prefix / folder).mkdir(parents=True)
    assert imported(prefix) == ["local/lib/python3.11/dist-packages", "lib/python3/dist-packages"]


def test_fedora(tmp_path):
    prefix = make_prefix(tmp_path / "usr")
    for folder in ("lib64/python3.11/site-packages", "local/lib/python3.11/site-packages"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "lib64" / "python3.11" / "os.py").touch()
    expected = ["local/lib/python3.11/site-packages", "lib64/python3.11/site-packages", "lib/python3.11/site-packages"]
    assert imported(prefix) == expected


def test_lib64_that_is_a_link_counts_once(tmp_path):
    prefix = make_prefix(tmp_path / "python")
    (prefix / "lib64").symlink_to("lib")
    assert imported(prefix) == ["lib/python3.11/site-packages"]


def test_windows(tmp_path):
    prefix = tmp_path / "venv"
    (prefix / "Scripts").mkdir(parents=True)
    (prefix / "Lib" / "site-packages").mkdir(parents=True)
    (prefix / "Scripts" / "python.exe").write_bytes(b"MZ")
    (prefix / "pyvenv.cfg").write_text("home = C:\\Python311\nversion_info = 3.11.7.final.0\n")
    layout = locate(str(prefix / "Scripts" / "python.exe"), None, {})
    assert layout.version == "3.11.7"
    assert layout.site_packages == (str(prefix / "Lib" / "site-packages"),)


@pytest.mark.parametrize("version", ["3.13t", "3.9"])
def test_versions_of_two_digits_and_free_threading(tmp_path, version):
    assert imported(make_prefix(tmp_path / "python", version=version)) == [f"lib/python{version}/site-packages"]


def test_several_versions_in_one_prefix(tmp_path):
    prefix = make_prefix(make_prefix(tmp_path / "usr", version="3.9"), version="3.12")
    assert imported(prefix) == ["lib/python3.9/site-packages"]
    layout = locate(str(prefix / "bin" / "python3.12"), None, {})
    assert layout.site_packages == (str(site_of(prefix, "3.12")),)
    assert layout.version == "3.12"


def test_micro_version_from_the_header(tmp_path):
    prefix = make_prefix(tmp_path / "usr")
    header = prefix / "include" / "python3.11" / "patchlevel.h"
    header.parent.mkdir(parents=True)
    header.write_text('#define PY_MICRO_VERSION 2\n#define PY_VERSION      	"3.11.2"\n')
    assert locate(None, str(prefix), {}).version == "3.11.2"


def test_micro_version_from_conda(tmp_path):
    prefix = make_prefix(tmp_path / "envs" / "train")
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "python-3.11.9-h955ad1f_0.json").touch()
    layout = locate(None, str(prefix), {})
    assert layout.version == "3.11.9"
    assert layout.conda_meta == (str(prefix / "conda-meta"),)


def test_pyenv_shim(tmp_path):
    root = tmp_path / "pyenv"
    prefix = make_prefix(root / "versions" / "3.11.7")
    (root / "shims").mkdir()
    shim = root / "shims" / "python"
    shim.write_text("#!/usr/bin/env bash\nexec pyenv\n")
    (root / "version").write_text("3.11.7\n")
    layout = locate(str(shim), None, {})
    assert (layout.prefix, layout.version) == (str(prefix), "3.11.7")
    with pytest.raises(InputError, match="shim"):
        locate(str(shim), None, {"PYENV_VERSION": "3.9.1"})


def test_order_without_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    active = make_venv(tmp_path / "venv", make_prefix(tmp_path / "base"))
    conda = make_prefix(tmp_path / "conda")
    environ = {"VIRTUAL_ENV": str(active), "CONDA_PREFIX": str(conda)}
    assert (locate(None, None, environ).prefix, locate(None, None, environ).chosen) == (str(active), "VIRTUAL_ENV")
    assert locate(None, None, {"CONDA_PREFIX": str(conda)}).chosen == "CONDA_PREFIX"
    (active / "below").mkdir()
    monkeypatch.chdir(active / "below")
    assert locate(None, None, {}).prefix == str(active)  # inside of one
    monkeypatch.chdir(tmp_path)
    found = locate(None, None, {})
    assert (found.prefix, found.executable) == (str(active), str(active / "bin/python"))
    assert found.chosen == "no environment is active: the nearest one here or above"
    dotted = make_venv(tmp_path / ".venv", make_prefix(tmp_path / "base2"))
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert locate(None, None, {}).prefix == str(dotted)
    (tmp_path / "a/venv").mkdir()  # a directory of this name may be anything
    assert locate(None, None, {}).prefix == str(dotted)
    (tmp_path / "a/.venv").write_text("name of an environment kept elsewhere")
    assert locate(None, None, {}).prefix == str(dotted)
    assert locate(None, None, {"CONDA_PREFIX": str(conda)}).chosen == "CONDA_PREFIX"


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_a_broken_environment_is_not_passed_over(tmp_path, monkeypatch, make):
    make(tmp_path / ".venv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no pyvenv\.cfg"):
        locate(None, None, {})


def test_own_environment_is_the_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = locate(None, None, {})
    assert own.prefix == sys.prefix
    assert own.version == ".".join(map(str, sys.version_info[:3]))
    assert "itself" in own.chosen


def test_command_on_path(tmp_path):
    prefix = make_prefix(tmp_path / "python")
    (prefix / "bin" / "python3.11").chmod(0o755)
    assert locate("python3.11", None, {"PATH": f"{tmp_path}{os.pathsep}{prefix}/bin"}).prefix == str(prefix)
    with pytest.raises(InputError, match=r"no command 'python3\.11' on PATH"):
        locate("python3.11", None, {"PATH": ""})


def test_directory_of_packages(tmp_path):
    add_dist(tmp_path, "torch", "2.5.1")
    layout = locate(None, str(tmp_path), {})
    assert layout.site_packages == (str(tmp_path),)
    assert layout.version is None


BAD_INPUTS = (
    "directory",
    "missing",
    "script",
    "script named python",
    "without library",
    "other program",
    "dangling",
    "prefix missing",
    "prefix is a file",
    "prefix is empty",
    "stale variable",
    "both",
    "null byte",
)


def bad_inputs(tmp_path):
    (tmp_path / "python").mkdir()
    (tmp_path / "script").write_text("#!/bin/sh\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "python3.11").write_bytes(ELF)
    (tmp_path / "bin" / "ls").write_bytes(ELF)
    (tmp_path / "dangling").symlink_to("nowhere/python")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    return {
        "directory": (str(tmp_path / "python"), None, {}, "is a directory"),
        "missing": (str(tmp_path / "nope"), None, {}, "does not exist"),
        "script": (str(tmp_path / "script"), None, {}, "not a Python interpreter"),
        "script named python": (str(tmp_path / "bin" / "python3"), None, {}, "not a Python interpreter"),
        "without library": (str(tmp_path / "bin" / "python3.11"), None, {}, "no Python library"),
        "other program": (str(tmp_path / "bin" / "ls"), None, {}, "not a Python interpreter"),
        "dangling": (str(tmp_path / "dangling"), None, {}, "does not exist"),
        "prefix missing": (None, str(tmp_path / "nope"), {}, "does not exist"),
        "prefix is a file": (None, str(tmp_path / "file"), {}, "is not a directory"),
        "prefix is empty": (None, str(tmp_path / "empty"), {}, "holds no Python environment"),
        "stale variable": (None, None, {"VIRTUAL_ENV": str(tmp_path / "nope")}, "does not exist"),
        "both": ("python", str(tmp_path), {}, "two environments"),
        "null byte": ("py\0thon/x", None, {}, "does not exist"),
    }


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_names_the_remedy(tmp_path, case):
    python, prefix, environ, message = bad_inputs(tmp_path)[case]
    with pytest.raises((InputError, UsageError), match=message) as caught:
        locate(python, prefix, environ)
    assert caught.value.hint
    assert caught.value.exit_code == (2 if case == "both" else 4)


@pytest.mark.slow
@pytest.mark.parametrize("no_user_site", [{}, {"PYTHONNOUSERSITE": "1"}])
@pytest.mark.parametrize("system", [True, False])
def test_agrees_with_a_real_virtual_environment(tmp_path, system, no_user_site):
    short = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / "home" / ".local" / "lib" / short / "site-packages").mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home"), **no_user_site}
    venv.create(tmp_path / "venv", system_site_packages=system, with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    code = "import site, sys; print(sys.prefix); print(*[p for p in sys.path if p.endswith('-packages')], sep='\\n')"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=environ)
    prefix, *folders = result.stdout.splitlines()
    layout = locate(str(python), None, environ)
    assert layout.prefix == prefix
    assert [os.path.realpath(path) for path in layout.site_packages] == [os.path.realpath(path) for path in folders]
    assert layout.version == ".".join(map(str, sys.version_info[:3]))
