"""A missing part is got the same way whoever misses it, by what this machine has."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from compatcheck.core import installation
from compatcheck.core.installation import tell_remedy, tell_remedy_of_pip
from compatcheck.core.programs import Program
from tests import ROOT

PACKAGE = ROOT / "compatcheck"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what makes a machine: programs, modules, whether this is a virtual environment, and the system's mark."""

    def make(*names: str, venv: bool = True, managed: bool = False) -> None:
        def find(name: str, _: object = None) -> Program:
            return Program(name, f"/usr/bin/{name}" if name in names else None)

        monkeypatch.setattr(installation, "find_program", find)
        monkeypatch.setattr(installation, "find_spec", lambda name: name if f"module {name}" in names else None)
        monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
        monkeypatch.setattr(sys, "base_prefix", "/usr")
        monkeypatch.setattr(sys, "prefix", str(tmp_path) if venv else "/usr")
        if managed:
            (tmp_path / "EXTERNALLY-MANAGED").touch()
        monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))

    return make


def test_a_python_with_pip_is_told_pip(machine):
    machine("module pip", "uv")
    assert tell_remedy("mcp") == "/usr/bin/python3 -m pip install 'mcp>=2.2,<3'"
    assert tell_remedy("uv") == "/usr/bin/python3 -m pip install uv"


def test_a_virtual_environment_without_pip_is_told_what_works(machine):
    machine("uv")
    assert tell_remedy("Jinja2") == "uv pip install --python /usr/bin/python3 Jinja2"
    machine("module ensurepip", "apt")
    both = "/usr/bin/python3 -m ensurepip && /usr/bin/python3 -m pip install uv"
    assert (tell_remedy("uv"), tell_remedy_of_pip()) == (both, "/usr/bin/python3 -m ensurepip")


@pytest.mark.parametrize("modules", [(), ("module pip",), ("module ensurepip",)])
def test_debians_own_python_is_never_told_to_run_its_pip(machine, modules: tuple[str, ...]):
    machine("apt", *modules, venv=False, managed=True)
    assert tell_remedy("uv") == "apt install pipx && pipx install uv"
    first = "" if "module ensurepip" in modules else "apt install python3-venv && "
    where = "in a virtual environment that compatcheck is run from: "
    command = f"{first}/usr/bin/python3 -m venv DIRECTORY && DIRECTORY/bin/pip install Jinja2"
    assert tell_remedy("Jinja2") == where + command
    assert tell_remedy_of_pip() == "apt install python3-pip"
    machine("apt", "pipx", *modules, venv=False, managed=True)
    assert tell_remedy("pip-audit") == "pipx install pip-audit"
    machine("uv", *modules, venv=False, managed=True)
    assert tell_remedy("pip-audit") == "uv tool install pip-audit"


def test_every_requirement_is_that_of_an_extra():
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [one for one in installation._REQUIREMENTS.values() if f'["{one}"]' not in extras] == []


def test_one_place_says_how_a_missing_part_is_got():
    """Nowhere else does a hint say `pip install` or `pipx install` of a part of this installation."""
    parts = "|".join(("uv", "pip-audit", "jinja2", "backports", "mcp", "'mcp"))
    told = re.compile(rf"(?:pipx|pip) install (?:{parts})\b", re.IGNORECASE)
    others = {
        os.path.relpath(path, PACKAGE): found[0]
        for path in PACKAGE.rglob("*.py")
        if (found := told.search(path.read_text(encoding="utf-8"))) and path.name != "programs.py"
    }
    assert others == {}


def test_no_hint_names_a_file_of_the_sources():
    """An installed package has neither `docs/` nor `rules/`; only what it is told of the sources may name one."""
    named = re.compile(
        r"""hint\b[^\n]*["' (](?:docs|rules|fixtures|tests)/[\w/]*\.(?:md|yaml|py)\b(?! of the sources)"""
    )
    said = {
        os.path.relpath(path, PACKAGE): found[0]
        for path in PACKAGE.rglob("*.py")
        if (found := named.search(path.read_text(encoding="utf-8")))
    }
    assert said == {}
