"""Lock files of PEP 751 are selected as ``packaging.pylock`` selects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.locks.pylock import read_pylock
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.selection import DEFAULT, Choice, Selection
from compatcheck.core.toml import parse_toml
from tests import ROOT
from tests.unit.collectors.certain import certain

PATH = str(ROOT / "fixtures" / "environments" / "uv-project" / "pylock.toml")

HEAD = 'lock-version = "1.0"\ncreated-by = "test"\n'


def _read(tmp_path: Path, text: str, selection: Selection = DEFAULT) -> Environment:
    lock = tmp_path / "pylock.toml"
    lock.write_text(HEAD + text)
    return read_pylock(str(lock), selection=selection)


def describe_linux(python: str) -> dict[str, str]:
    return {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "platform_release": "6.1",
        "platform_version": "1",
        "implementation_name": "cpython",
        "implementation_version": python,
        "platform_python_implementation": "CPython",
    }


@pytest.mark.parametrize("python", ["3.10.4", "3.11.7", "3.12.1", "3.14.0"])
def test_selection_agrees_with_packaging(python: str) -> None:
    pylock = pytest.importorskip("packaging.pylock")
    lock = pylock.Pylock.from_dict(parse_toml(Path(PATH).read_text(), PATH))
    machine = describe_linux(python)
    expected = set()
    for package in lock.packages:
        if package.marker is None or package.marker.evaluate(
            {**machine, "extras": set(), "dependency_groups": set()},
            context="lock_file",
        ):
            expected.add((package.name, None if package.version is None else str(package.version)))
    found = read_pylock(PATH, selection=Selection(python=python))
    assert found.complete
    assert {(name, package.version) for name, package in found.packages.items()} == expected


@pytest.mark.parametrize("python", ["3.10.4", "3.11.7", "3.12.1"])
def test_selection_agrees_with_an_installer(python: str) -> None:
    """`Pylock.select` is what an installer calls; it chooses files too, so it is given tags that every one fits."""
    pylock = pytest.importorskip("packaging.pylock")
    if not hasattr(pylock.Pylock, "select"):
        pytest.skip("this packaging cannot select")
    from packaging import tags

    lock = pylock.Pylock.from_dict(parse_toml(Path(PATH).read_text(), PATH))
    version = tuple(map(int, python.split(".")[:2]))
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)]
    interpreter = f"cp{version[0]}{version[1]}"
    known = [*tags.cpython_tags(version, platforms=platforms), *tags.compatible_tags(version, interpreter, platforms)]
    machine = describe_linux(python)
    chosen = lock.select(environment=machine, tags=known, extras=[], dependency_groups=None)
    expected = {(one.name, None if one.version is None else str(one.version)) for one, _ in chosen}
    found = read_pylock(PATH, selection=Selection(python=python)).packages
    assert {(name, package.version) for name, package in found.items()} == expected


def test_a_lock_for_other_machines_is_said(tmp_path: Path) -> None:
    text = 'environments = ["sys_platform == \'win32\'"]\n[[packages]]\nname = "a"\nversion = "1"\n'
    assert any("other machines than Linux" in note for note in _read(tmp_path, text).notes)
    text = text.replace("]", ", \"sys_platform == 'linux'\"]", 1)
    assert not _read(tmp_path, text).notes


def test_lines_details_and_missing_versions() -> None:
    environment = read_pylock(PATH, selection=Selection(python="3.11.7"))
    lines = Path(PATH).read_text().split("\n")
    for package in environment.packages.values():
        assert package.source.line is not None
        assert lines[package.source.line - 1] == f'name = "{package.name}"'
    vcs = environment.packages["demo-vcs"]
    assert (vcs.version, vcs.details["revision"]) == ("0.16.5", "v0.16.5")
    member = environment.packages["demo-member"]
    assert (member.version, member.specifier, member.details["editable"]) == (None, "", "true")


def test_unknown_python_joins_versions() -> None:
    assert read_pylock(PATH).packages["numpy"].specifier == "==2.2.6 || ==2.4.6 || ==2.5.5"


def test_extras_and_groups_select(tmp_path: Path) -> None:
    text = (
        'extras = ["gpu"]\ndependency-groups = ["dev", "docs"]\ndefault-groups = ["docs"]\n'
        '[[packages]]\nname = "torch"\nversion = "2.6.0+cu124"\nmarker = "\'gpu\' in extras"\n'
        '[[packages]]\nname = "ruff"\nversion = "0.5"\nmarker = "\'dev\' in dependency_groups"\n'
        '[[packages]]\nname = "mkdocs"\nversion = "1.6"\nmarker = "\'docs\' in dependency_groups"\n'
    )
    default = _read(tmp_path, text)
    assert set(certain(default)) == {"mkdocs"}
    assert default.packages["torch"].brought_by == (Choice("extra", "gpu"),)
    assert default.packages["ruff"].brought_by == (Choice("group", "dev"),)
    chosen = _read(tmp_path, text, Selection(extras=("gpu",), groups=("dev",)))
    assert {name: package.version for name, package in certain(chosen).items()} == {
        "torch": "2.6.0+cu124",
        "ruff": "0.5",
    }


def test_archive_filename_gives_the_version(tmp_path: Path) -> None:
    text = '[[packages]]\nname = "flash-attn"\narchive = { url = "URL" }\n'.replace(
        "URL",
        "https://u:p@h.example/flash_attn-2.7.4-cp311-cp311-linux_x86_64.whl?token=1",
    )
    package = _read(tmp_path, text).packages["flash-attn"]
    assert package.version == "2.7.4"
    assert "p@" not in str(package.details)
    assert "token=1" not in str(package.details)


def test_wrong_python_is_noted(tmp_path: Path) -> None:
    text = 'requires-python = ">=3.12"\n[[packages]]\nname = "a"\nversion = "1"\n'
    environment = _read(tmp_path, text, Selection(python="3.10.1"))
    assert any("is for Python >=3.12" in note for note in environment.notes)


def test_ambiguous_entries_are_not_guessed(tmp_path: Path) -> None:
    text = '[[packages]]\nname = "a"\nversion = "1"\n[[packages]]\nname = "a"\nversion = "2"\n'
    environment = _read(tmp_path, text)
    assert environment.packages["a"].version is None
    assert any("no single release" in note for note in environment.notes)


@pytest.mark.parametrize("entry", ["version = '1'", "name = 1", "name = 'b'\nversion = 1", "name = 'b'\nmarker = 1"])
def test_odd_entries_are_reported_and_do_not_lose_the_others(tmp_path: Path, entry: str) -> None:
    environment = _read(tmp_path, f"[[packages]]\n{entry}\n[[packages]]\nname = 'a'\nversion = '1'\n")
    assert environment.packages["a"].version == "1"
    assert len(environment.skipped) == 1
    assert environment.skipped[0].hint
    assert not environment.complete


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("packages = []", "has no lock-version"),
        ('lock-version = "2.0"\npackages = []', "lock-version '2.0'"),
        ('lock-version = "x"\npackages = []', "lock-version 'x'"),
        ('lock-version = "1.0"', r"no \[\[packages\]\]"),
        ('lock-version = "1.0"\nlock-version = "1.0"', "pylock.toml:2"),
    ],
)
def test_malformed_lock_names_the_place(tmp_path: Path, text: str, reason: str) -> None:
    lock = tmp_path / "pylock.toml"
    lock.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_pylock(str(lock))


def test_newer_minor_version_is_noted(tmp_path: Path) -> None:
    lock = tmp_path / "pylock.toml"
    lock.write_text('lock-version = "1.3"\n[[packages]]\nname = "a"\nversion = "1"\n')
    assert any("1.3" in note for note in read_pylock(str(lock)).notes)
