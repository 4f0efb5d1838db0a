"""What an installation has is found without running what is inspected, and what is missing comes with a way to get it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compatcheck.checking import installation, open_rules
from compatcheck.core import installation as remedies
from compatcheck.core.installation import Part


def examine(path: Path, **variables: str) -> dict[str, Part]:
    found = installation.examine(open_rules(), {"PATH": str(path), **variables}, laboratory=True)
    return {part.name: part for part in found.parts}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of programs, and work in another one; nothing lies beside this interpreter."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(
        installation.find_program.__globals__["os"].path, "expanduser", lambda path: str(tmp_path / path)
    )
    monkeypatch.setitem(installation.find_program.__globals__, "own_programs", lambda: str(tmp_path / "own"))
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def have(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let this interpreter have these modules alone."""
    for place in (installation, remedies):
        monkeypatch.setattr(place, "find_spec", lambda name: object() if name in modules else None)


def write(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


def test_programs_say_their_version(programs: Path) -> None:
    write(programs, "uv", "echo 'uv 0.9.17 (x86_64-unknown-linux-gnu)'")
    write(programs, "git", "echo 'git version 2.39.5'")
    write(programs, "clang", "exit 3")
    parts = examine(programs)
    assert (parts["uv"].version, parts["uv"].place, parts["uv"].remedy) == ("0.9.17", str(programs / "uv"), None)
    assert parts["git"].version == "2.39.5"
    assert (parts["clang"].version, parts["clang"].remedy) == (None, None)


def test_what_is_missing_comes_with_a_way_to_get_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "pip")
    environment = programs / "environment"
    (environment / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    parts = examine(programs, VIRTUAL_ENV=str(environment))
    assert parts["pip-audit"].remedy == f"{sys.executable} -m pip install pip-audit"
    assert parts["uv"].remedy == f"{sys.executable} -m pip install uv"
    assert {name for name, part in parts.items() if part.remedy is None} == {"pip", "laboratory"}
    have(monkeypatch)
    write(programs, "uv", "echo uv 0.9.17")
    assert examine(programs)["pip-audit"].remedy == f"uv pip install --python {sys.executable} pip-audit"


@pytest.mark.usefixtures("programs")
def test_a_program_of_the_active_environment_is_not_run(tmp_path: Path) -> None:
    active = tmp_path / "venv"
    (active / "bin").mkdir(parents=True)
    (active / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    write(active / "bin", "uv", f"touch {tmp_path / 'ran'}")
    uv = examine(active / "bin", VIRTUAL_ENV=str(active))["uv"]
    assert uv.version is None
    assert f"{active / 'bin' / 'uv'} is not run" in (uv.remedy or "")
    assert (uv.remedy or "").endswith(f"; {remedies.tell_remedy('uv')}")
    assert not (tmp_path / "ran").exists()


def test_torch_is_that_of_the_environment_that_env_checks(programs: Path, tmp_path: Path) -> None:
    info = tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "torch-2.6.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    torch = examine(programs, VIRTUAL_ENV=str(tmp_path / "venv"))["torch"]
    assert (torch.version, torch.remedy) == ("2.6.0", None)


def test_the_installation_itself() -> None:
    found = installation.examine(open_rules(), {}, laboratory=False)
    assert found.kind == "checkout"
    assert found.rules_age_days >= 0
    assert next(part for part in found.parts if part.name == "laboratory").remedy is not None


def make_examined(programs: Path, *, laboratory: bool) -> dict[str, Part]:
    found = installation.examine(open_rules(), {"PATH": str(programs)}, laboratory=laboratory)
    return {part.name: part for part in found.parts}


def test_what_measures_alone_has_a_use_for_is_no_part_of_what_cannot_measure(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(programs, "cc", "echo cc 12.2.0")
    monkeypatch.setattr(installation, "_find_kind", lambda _: "archive")
    parts = make_examined(programs, laboratory=False)
    assert {"cc", "pip", "C compiler"} & set(parts) == set()
    assert {"cc", "pip"} <= set(make_examined(programs, laboratory=True))
    said = " ".join(part.enables for name, part in parts.items() if name != "laboratory")
    assert [word for word in ("bisect", "--torch", "--trace", "probes") if word in said] == []
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    missing = make_examined(programs, laboratory=False)
    instead = "run it from a checkout or an installed package instead"
    assert missing["libyaml"].remedy == f"this archive comes without what is compiled: {instead}"
    assert missing["laboratory"].remedy == f"this archive comes without what measures: {instead}"


@pytest.mark.parametrize(
    ("left", "kind", "remedy"),
    [
        ("pipx_metadata.json", "pipx", "pipx inject compatcheck Jinja2"),
        ("uv-receipt.toml", "uv tool", "uv tool install compatcheck --with Jinja2"),
        ("other", "package", f"{sys.executable} -m pip install Jinja2"),
    ],
)
def test_parts_are_got_as_it_was_installed(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, kind: str, remedy: str
) -> None:
    (tmp_path / "prefix").mkdir()
    (tmp_path / "prefix" / left).write_text("")
    monkeypatch.setattr(installation, "is_checkout", lambda: False)
    have(monkeypatch, "pip")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    assert make_examined(programs, laboratory=True)["Jinja2"].remedy == remedy
    assert installation.examine(open_rules(), {}, laboratory=True).kind == kind
