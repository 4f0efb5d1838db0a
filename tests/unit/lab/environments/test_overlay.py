"""An overlay holds what its requirements mean now, and every commit and tree is a version of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compatcheck.lab.environments.installed import hash_tree, list_versions
from compatcheck.lab.environments.installer import Pip, UnbuildableError
from compatcheck.lab.environments.overlay import Base, Overlays, build_base
from compatcheck.lab.environments.sources import resolve_source
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


@pytest.mark.parametrize("how", ["branch", "head", "tree"])
def test_what_a_tree_brings_along_is_what_it_is_today(overlays: Overlays, tree: Tree, tmp_path: Path, how: str) -> None:
    """A branch or a tree that only the tree itself names."""
    helper = Tree(tmp_path / "helper")
    where = {"branch": f"git+{helper.folder.as_uri()}@main", "head": f"git+{helper.folder.as_uri()}"}
    needs = f"helper @ {where.get(how, helper.folder.as_uri())}"

    def write(more: int) -> None:
        (helper.folder / "release.py").write_text("NAME, VERSION, NEEDS = 'helper', '1.0', ()\n", encoding="utf-8")
        (helper.folder / "helper.py").write_text(f"MORE = {more}\n", encoding="utf-8")
        helper.git("add", ".")
        helper.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "work")

    tree.write(2)
    (tree.folder / "release.py").write_text(f"NAME, VERSION, NEEDS = 'leaky', '1.0', ({needs!r},)\n", encoding="utf-8")
    seen = set()
    for more in (8, 16, 24):
        write(more)
        interpreter = overlays.open([tree.requirement])
        assert Path(interpreter.paths[0], "helper.py").read_text(encoding="utf-8") == f"MORE = {more}\n"
        assert overlays.open([tree.requirement]) == interpreter
        seen.add(interpreter.fingerprint)
    assert len(seen) == 3


def test_what_is_brought_along_may_bring_along_more(overlays: Overlays, tree: Tree, tmp_path: Path) -> None:
    """A branch of a branch moves."""
    deep, helper = Tree(tmp_path / "deep"), Tree(tmp_path / "helper")

    def write(where: Tree, name: str, more: str, needs: str) -> None:
        (where.folder / "release.py").write_text(
            f"NAME, VERSION, NEEDS = {name!r}, '1.0', ({needs})\n", encoding="utf-8"
        )
        (where.folder / f"{name}.py").write_text(f"MORE = {more}\n", encoding="utf-8")
        where.git("add", ".")
        where.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "work")

    tree.write(2)
    needs = f"helper @ git+{helper.folder.as_uri()}@main"
    (tree.folder / "release.py").write_text(f"NAME, VERSION, NEEDS = 'leaky', '1.0', ({needs!r},)\n", encoding="utf-8")
    write(helper, "helper", "1", "")
    assert "deep" not in overlays.open([tree.requirement]).versions
    for more in ("8", "16", "24"):
        write(deep, "deep", more, "")
        if more == "8":
            write(helper, "helper", "2", f"'deep @ git+{deep.folder.as_uri()}@main',")
        interpreter = overlays.open([tree.requirement])
        assert Path(interpreter.paths[0], "deep.py").read_text(encoding="utf-8") == f"MORE = {more}\n"


def test_an_archive_elsewhere_is_known_by_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main.zip` of a repository is another one after each commit."""
    monkeypatch.setattr("compatcheck.lab.environments.sources.fetch_file", lambda _: content)
    url = "leaky @ https://host.example/archive/main.zip"
    content = b"one"
    first = resolve_source(url)
    content = b"two"
    assert resolve_source(url) != first
    assert resolve_source(f"{url}#sha256={'0' * 64}").content == "", "what is in it is stated"


def test_a_branch_is_the_one_of_its_whole_name(tree: Tree) -> None:
    """A clone lists the main that it last saw elsewhere, too, and branches whose names end in main."""
    seen = tree.commit(8)
    for ref in ("remotes/origin/main", "heads/old/main", "heads/zeta/main", "tags/other/v1", "tags/v1"):
        tree.git("update-ref", f"refs/{ref}", seen)
    own = tree.commit(2, tag="v2")
    tree.git("-c", "user.name=a", "-c", "user.email=a@b", "tag", "--annotate", "--message", "a", "whole")
    url = f"leaky @ git+{tree.folder.as_uri()}"
    for name in ("", "@HEAD", "@main", "@refs/heads/main", "@heads/main", "@v2", "@whole"):
        assert resolve_source(f"{url}{name}").requirement == f"{url}@{own}"
    for name in ("origin/main", "old/main", "v1"):
        assert resolve_source(f"{url}@{name}").requirement == f"{url}@{seen}"


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


def test_a_tree_is_known_by_the_egg_info_in_it(tree: Tree, tmp_path: Path) -> None:
    """`setup.py develop` writes nothing else: a dirty tree is not the release that it calls itself."""
    told = {"tree": tmp_path / "leaky" / "src", "release": tmp_path / "site-packages"}
    for folder in told.values():
        info = folder / "leaky.egg-info"
        info.mkdir(parents=True)
        (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: leaky\nVersion: 1.0\n", encoding="utf-8")
    found = {name: list_versions([str(folder)])["leaky"] for name, folder in told.items()}
    assert found["release"] == "1.0"
    assert found["tree"].startswith("1.0+tree")
    (tree.folder / "src" / "leaky.py").write_text(leaky(8), encoding="utf-8")
    assert list_versions([str(told["tree"])])["leaky"] not in {"1.0", found["tree"]}


@pytest.mark.parametrize(("installer", "label"), [("conda", "1.0"), ("pip", "1.0+file")])
def test_a_package_of_conda_is_the_release(tmp_path: Path, installer: str, label: str) -> None:
    """Its direct_url.json names a folder of the machine that packed it."""
    info = tmp_path / "leaky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky\nVersion: 1.0\n", encoding="utf-8")
    (info / "INSTALLER").write_text(f"{installer}\n", encoding="utf-8")
    (info / "direct_url.json").write_text('{"url": "file:///home/conda/feedstock_root/work"}', encoding="utf-8")
    found = list_versions([str(tmp_path)])["leaky"]
    assert found.startswith(label)
    assert ("+" in found) == ("+" in label)


def test_a_package_that_is_called_build_is_part_of_a_tree(tree: Tree) -> None:
    """What a build leaves lies beside the project's own file."""
    tree.write(2)
    first = hash_tree(str(tree.folder))
    for folder, differs in (("build", False), ("dist", False), ("leaky_tools/build", True)):
        (tree.folder / folder).mkdir(parents=True)
        (tree.folder / folder / "more.py").write_text("A = 1\n", encoding="utf-8")
        assert (hash_tree(str(tree.folder)) != first) == differs


def test_a_large_library_of_a_tree_is_taken_by_its_content(tree: Tree) -> None:
    tree.write(2)
    for name, differs in (("kernel.so", True), ("rows.bin", False)):
        file = tree.folder / name
        file.write_bytes(bytes(5 * 2**20))
        first = hash_tree(str(tree.folder))
        file.write_bytes(bytes([1]) * 5 * 2**20)
        assert (hash_tree(str(tree.folder)) != first) == differs


def test_a_range_means_the_release_of_the_day(overlays: Overlays, index: Path) -> None:
    pack(index, "leaky", "1.0", leaky(2), ("helper",))
    assert held(overlays, "leaky")[0] == "1.0"
    pack(index, "leaky", "1.1", leaky(8), ("helper",))
    assert held(overlays, "leaky") == ("1.1", "BYTES = 8")
    assert held(overlays, "leaky<1.1") == ("1.0", "BYTES = 2")


def test_a_build_that_the_index_lacks_is_taken_from_pytorchs_own(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compatcheck.lab.environments.overlay.uv_variables", dict)
    for name in ("numpy", "psutil", "setuptools", "wheel"):
        pack(index, name, "1.0", "")
    with pytest.raises(UnbuildableError, match=r"torch 1\.0\+own: "):
        build_base("1.0+own", python=sys.executable)
    page = tmp_path / "builds" / "torch" / "index.html"
    page.parent.mkdir(parents=True)
    wheel = pack(page.parent, "torch", "1.0+cpu", "")
    page.write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>', encoding="utf-8")
    monkeypatch.setattr("compatcheck.lab.environments.overlay.index_of", lambda _: (tmp_path / "builds").as_uri())
    assert build_base("1.0+cpu", python=sys.executable).versions["torch"] == "1.0+cpu"


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
