"""An overlay holds what its requirements mean now, and every commit and tree is a version of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.lab.environments.installer import Pip, UnbuildableError
from compatcheck.lab.environments.overlay import Base, Overlays
from tests.unit.lab.local_packages import Tree, leaky
from tests.unit.lab.pack_wheel import pack


def held(overlays: Overlays, requirement: str) -> tuple[str, str]:
    """Return the version of leaky in an overlay, and how many bytes its code holds."""
    interpreter = overlays.open([requirement])
    text = Path(interpreter.paths[0], "leaky.py").read_text(encoding="utf-8")
    return interpreter.versions["leaky"], text.splitlines()[1]


def test_a_tree_that_changed_is_another_version_and_another_overlay(overlays: Overlays, tree: Tree) -> None:
    tree.write(8)
    first, code = held(overlays, tree.requirement)
    assert code == "BYTES = 8"
    tree.write(2)
    second, code = held(overlays, tree.requirement)
    assert code == "BYTES = 2"
    assert first.startswith("1.0+tree")
    assert second.startswith("1.0+tree")
    assert first != second
    tree.write(8)
    assert held(overlays, tree.requirement) == (first, "BYTES = 8")


def test_a_branch_that_moved_is_built_anew(overlays: Overlays, tree: Tree) -> None:
    branch = f"leaky @ git+{tree.folder.as_uri()}@main"
    for number in (8, 2):
        commit = tree.commit(number)
        assert held(overlays, branch) == (f"1.0+git{commit[:12]}", f"BYTES = {number}")
    assert overlays.open([branch]).requirements() == [f"leaky @ git+{tree.folder.as_uri()}@{commit}"]


def test_commit_dirty_tree_and_release_of_one_version_are_three_things(
    overlays: Overlays, tree: Tree, index: Path
) -> None:
    pack(index, "leaky", "1.0", leaky(2), ("helper",))
    commit = tree.commit(4)
    tree.write(8)
    found = {
        held(overlays, text)
        for text in ("leaky==1.0", f"leaky @ git+{tree.folder.as_uri()}@{commit}", tree.requirement)
    }
    assert {code for _, code in found} == {"BYTES = 2", "BYTES = 4", "BYTES = 8"}
    assert len({version for version, _ in found}) == 3


def test_a_range_means_the_release_of_the_day(overlays: Overlays, index: Path) -> None:
    pack(index, "leaky", "1.0", leaky(2), ("helper",))
    assert held(overlays, "leaky")[0] == "1.0"
    pack(index, "leaky", "1.1", leaky(8), ("helper",))
    assert held(overlays, "leaky") == ("1.1", "BYTES = 8")
    assert held(overlays, "leaky<1.1") == ("1.0", "BYTES = 2")


def test_a_branch_that_is_not_there_is_said(overlays: Overlays, tree: Tree) -> None:
    tree.commit(2)
    with pytest.raises(UnbuildableError, match="lists no branch or tag nowhere"):
        overlays.open([f"leaky @ git+{tree.folder.as_uri()}@nowhere"])


def test_pip_installs_a_commit_and_no_release_of_its_number(
    base: Base, index: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(index, "leaky", "1.0", leaky(2), ("helper",))
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    commit = tree.commit(4)
    overlays = Overlays(base, installer=Pip(), directory=index.parent / "environments")
    version = held(overlays, f"leaky @ git+{tree.folder.as_uri()}@{commit}")
    assert version == (f"1.0+git{commit[:12]}", "BYTES = 4")
