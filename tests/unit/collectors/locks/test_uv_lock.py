"""uv locks give what uv would install, for a known Python and for an unknown one."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.locks.uv_lock import read_uv_lock
from compatcheck.collectors.requirements.lines import read_requirements
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Choice, Selection, offer
from tests import ROOT
from tests.unit.collectors.certain import certain

FIXTURES = ROOT / "fixtures" / "environments"
LOCK = str(FIXTURES / "uv-project" / "uv.lock")
CONFLICTS = str(FIXTURES / "uv-conflicts" / "uv.lock")


@pytest.mark.parametrize(
    ("python", "numpy", "tomli"),
    [("3.10.4", "2.2.6", True), ("3.11.7", "2.4.6", False), ("3.13.0", "2.5.5", False)],
)
def test_python_chooses_the_fork(python: str, numpy: str, tomli: bool) -> None:  # noqa: FBT001 (a table)
    environment = read_uv_lock(LOCK, selection=Selection(python=python))
    assert environment.complete
    assert environment.python == python
    assert environment.packages["numpy"].version == numpy
    assert ("tomli" in environment.packages) == tomli
    assert "colorama" not in environment.packages
    assert "iniconfig" not in certain(environment)


@pytest.mark.parametrize("python", ["3.10.4", "3.11.7", "3.12.1", "3.14.0"])
def test_selection_agrees_with_what_uv_exports(python: str) -> None:
    exported = read_requirements(str(FIXTURES / "uv-project" / "exported.txt"), selection=Selection(python=python))
    locked = read_uv_lock(LOCK, selection=Selection(python=python))
    pinned = {name: package.version for name, package in exported.packages.items() if package.version}
    projects = {"demo-member", "demo-train", "demo-vcs"}
    assert {name: package.version for name, package in certain(locked).items() if name not in projects} == pinned


def test_unknown_python_keeps_every_version_it_could_get() -> None:
    environment = read_uv_lock(LOCK)
    numpy = environment.packages["numpy"]
    assert numpy.version is None
    assert numpy.specifier == "==2.2.6 || ==2.4.6 || ==2.5.5"
    assert environment.packages["tomli"].details["marker"]
    assert any("numpy" in note for note in environment.notes)


def test_groups_and_extras_come_when_selected() -> None:
    environment = read_uv_lock(LOCK, selection=Selection(extras=("CLI",), groups=("dev",)))
    assert {"click", "iniconfig", "pathspec"} <= set(certain(environment))
    assert read_uv_lock(LOCK).packages["click"].brought_by == (Choice("extra", "cli"),)


def test_lines_and_origins() -> None:
    environment = read_uv_lock(LOCK, selection=Selection(python="3.11.7"))
    lines = Path(LOCK).read_text().split("\n")
    for package in environment.packages.values():
        assert package.source.line is not None
        assert lines[package.source.line - 1] == f'name = "{package.name}"'
        assert lines[package.source.line] == f'version = "{package.version}"'
    assert environment.packages["demo-vcs"].details["revision"] == "v0.16.5"
    assert environment.packages["demo-train"].details["editable"] == "true"


@pytest.mark.parametrize(("extra", "version"), [("old", "23.2"), ("new", "24.2")])
def test_conflicting_extras_choose_their_version(extra: str, version: str) -> None:
    environment = read_uv_lock(CONFLICTS, selection=Selection(extras=(extra,)))
    assert environment.packages["packaging"].version == version
    assert "demo-conflict" not in environment.packages  # virtual: not installed


def test_unselected_extras_are_named() -> None:
    environment = read_uv_lock(CONFLICTS)
    packaging = environment.packages["packaging"]
    assert packaging.is_optional
    assert packaging.specifier == "==24.2 || ==23.2"
    assert packaging.brought_by == (Choice("extra", "new"), Choice("extra", "old"))
    assert "extras not selected: new, old" in environment.notes


def test_conflicting_extras_are_never_there_together() -> None:
    chosen = read_uv_lock(CONFLICTS, selection=Selection(extras=("old",)))
    assert chosen.packages["packaging"].version == "23.2"
    assert "excluded by what is selected: extra new" in chosen.notes
    for selection in (Selection(extras=("old", "new")), Selection(all_extras=True)):
        with pytest.raises(InputError, match="--extra new, --extra old exclude each other"):
            read_uv_lock(CONFLICTS, selection=selection)


def test_what_an_extra_of_another_extra_brings_is_optional(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(
        """version = 1
[[package]]
name = "demo"
version = "1"
source = { editable = "." }
[package.optional-dependencies]
all = [{ name = "demo", extra = ["train"] }]
train = [{ name = "deepspeed" }]
[package.dev-dependencies]
cuda = [{ name = "triton" }]
[package.metadata]
provides-extras = ["all", "train", "empty"]
[[package]]
name = "deepspeed"
version = "0.16.4"
[[package]]
name = "triton"
version = "3.2.0"
"""
    )
    environment = read_uv_lock(str(lock))
    assert environment.complete
    assert set(certain(environment)) == {"demo"}
    assert environment.packages["deepspeed"].version == "0.16.4"
    assert environment.packages["deepspeed"].brought_by == (Choice("extra", "all"), Choice("extra", "train"))
    assert environment.packages["triton"].brought_by == (Choice("group", "cuda"),)
    assert environment.offered == offer(["all", "train", "empty"], ["cuda"])
    assert set(certain(read_uv_lock(str(lock), selection=Selection(all_extras=True)))) == {"demo", "deepspeed"}


def test_conflict_markers_follow_the_selected_extra(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(
        """version = 1
requires-python = ">=3.11"
[[package]]
name = "demo"
version = "1"
source = { virtual = "." }
dependencies = [
    { name = "torch", version = "2.6.0", marker = "extra == 'extra-4-demo-cpu'" },
    { name = "torch", version = "2.6.0+cu124", marker = "extra == 'extra-4-demo-gpu' or extra != 'extra-4-demo-cpu'" },
]
[package.optional-dependencies]
cpu = []
gpu = []
[[package]]
name = "torch"
version = "2.6.0"
[[package]]
name = "torch"
version = "2.6.0+cu124"
""",
    )
    assert read_uv_lock(str(lock), selection=Selection(extras=("cpu",))).packages["torch"].version == "2.6.0"
    assert read_uv_lock(str(lock)).packages["torch"].version == "2.6.0+cu124"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("version = 2\n", "is of version 2"),
        ("package = []\n", "is of version None"),
        ("version = 1\npackage = 3\n", r"has no \[\[package\]\]"),
        ('version = 1\n[[package]]\nname = "a"\nname = "b"\n', "uv.lock:4.*not valid TOML"),
        ('version = 1\n[[package]]\nname = "a\n', "uv.lock:3.*not valid TOML"),
        ("version = 1\n[[package", "uv.lock:2.*cut off"),
    ],
)
def test_malformed_lock_names_the_place(tmp_path: Path, text: str, reason: str) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        read_uv_lock(str(lock))
    assert caught.value.hint


@pytest.mark.parametrize(
    "entry",
    [
        "version = '1'",
        "name = 3",
        "name = 'a'\nversion = 3\ndependencies = 'x'\nsource = 4",
        "name='a'\ndependencies=[{name=3}, 4]",
    ],
)
def test_odd_entries_do_not_lose_the_others(tmp_path: Path, entry: str) -> None:
    lock = tmp_path / "uv.lock"
    rest = '[[package]]\nname = "good"\nversion = "1"\nsource = { editable = "." }\n'
    lock.write_text(f"version = 1\n[[package]]\n{entry}\n{rest}")
    assert read_uv_lock(str(lock)).packages["good"].version == "1"


def test_a_dependency_cycle_ends(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    tables = [
        f'[[package]]\nname = "p{index}"\nversion = "1"\n'
        f'source = {{ {"registry" if index else "editable"} = "." }}\n'
        f'dependencies = [{{ name = "p{(index + 1) % 40}" }}]\n'
        for index in range(40)
    ]
    lock.write_text("version = 1\n" + "".join(tables))
    assert len(read_uv_lock(str(lock)).packages) == 40


def test_markers_that_cannot_be_read_keep_the_package(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(
        'version = 1\n[[package]]\nname = "demo"\nversion = "1"\nsource = { editable = "." }\n'
        'dependencies = [{ name = "torch", marker = "colour == \'red\'" }]\n'
        '[[package]]\nname = "torch"\nversion = "2.6.0"\n',
    )
    environment = read_uv_lock(str(lock))
    assert environment.packages["torch"].version == "2.6.0"
    assert any("colour" in note for note in environment.notes)
