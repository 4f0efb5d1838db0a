"""Commits between two tags, probes of one's own and trees that change under one name, by the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.lab.environments.overlay import Base
from tests.cli.run_cli import run
from tests.unit.lab.local_packages import Tree, leaky
from tests.unit.lab.pack_wheel import pack


@pytest.fixture
def history(tree: Tree) -> list[str]:
    """Six commits between v1 and v2; the fourth holds more."""
    hashes = [tree.commit(2, tag="v1")]
    for number in range(1, 6):
        (tree.folder / "notes.txt").write_text(str(number), encoding="utf-8")
        hashes.append(tree.commit(2 if number < 4 else 8, "1.0" if number < 5 else "2.0", f"change {number}"))
    tree.git("tag", "v2")
    return hashes


@pytest.mark.usefixtures("index")
def test_a_planted_regression_between_two_tags_is_found(history: list[str], tree: Tree, probe: str, base: Base) -> None:
    arguments = ("--package", "leaky", "--commits", "v1..v2", "--source", str(tree.folder), "--python", base.python)
    ran = run("bisect", probe, *arguments, "--exclude-newer", "never", "--format", "json")
    assert ran.code == 1, ran.err
    found = json.loads(ran.out)
    assert [(one["before"], one["after"]) for one in found["transitions"]] == [(history[3][:12], history[4][:12])]
    assert found["transitions"][0]["attribution"]["cause"] == "package"
    assert len(found["tested"]) < len(history)
    ran = run("evidence", "list", "--limit", "0", "--format", "json")
    versions = {one["versions"]["leaky"] for one in json.loads(ran.out)}
    assert f"1.0+git{history[4][:12]}" in versions
    assert all("+git" in version for version in versions)
    (command,) = {one["command"] for one in json.loads(ran.out) if history[4][:12] in one["versions"]["leaky"]}
    assert f"--with 'leaky @ git+{tree.folder.as_uri()}@{history[4]}'" in command


@pytest.mark.usefixtures("index", "history")
def test_a_sweep_over_commits_takes_all_of_them(tree: Tree, probe: str, base: Base) -> None:
    arguments = ("--package", "leaky", "--commits", "v1..v2", "--source", str(tree.folder))
    ran = run("sweep", "--probe", probe, *arguments, "--dry-run")
    assert ran.out.startswith("commits of leaky: 6, measurements of each: 1")
    ran = run("sweep", "--probe", probe, *arguments, "--exclude-newer", "never", "--python", base.python)
    assert ran.code == 1
    assert "held_bytes grew" in ran.out


@pytest.mark.usefixtures("index")
def test_what_grew_and_shrank_again_between_two_tags_is_found(tree: Tree, probe: str, base: Base) -> None:
    """Both ends are equal; a commit on the way cannot be built, and another came by a merge."""
    hashes = [tree.commit(2, tag="v1")]
    (tree.folder / "notes.txt").write_text("1", encoding="utf-8")
    hashes.append(tree.commit(2))
    tree.git("checkout", "--quiet", "-b", "side")
    tree.commit(8)
    tree.git("checkout", "--quiet", "main")
    (tree.folder / "notes.txt").write_text("2", encoding="utf-8")
    hashes.append(tree.commit(2))
    tree.git("-c", "user.name=a", "-c", "user.email=a@b", "merge", "--quiet", "--no-ff", "--message", "merge", "side")
    hashes.append(tree.git("rev-parse", "HEAD").strip())
    project = (tree.folder / "pyproject.toml").read_text(encoding="utf-8")
    (tree.folder / "pyproject.toml").write_text("no project [", encoding="utf-8")
    hashes.append(tree.commit(8))
    (tree.folder / "pyproject.toml").write_text(project, encoding="utf-8")
    hashes.append(tree.commit(2, tag="v2"))
    arguments = ("--package", "leaky", "--commits", "v1..v2", "--source", str(tree.folder), "--python", base.python)
    ran = run("bisect", probe, *arguments, "--exclude-newer", "never", "--format", "json")
    assert ran.code == 1, ran.err
    found = [(one["before"], one["after"], one["between"]) for one in json.loads(ran.out)["transitions"]]
    short = [one[:12] for one in hashes]
    assert found == [(short[2], short[3], []), (short[3], short[5], [short[4]])]


def test_a_commit_that_calls_itself_a_release_does_not_become_it(
    index: Path, tree: Tree, probe: str, base: Base
) -> None:
    """A store that holds a commit and a dirty tree of 1.0 answers nothing about the release."""
    pack(index, "leaky", "1.0", leaky(2), ("helper",))
    commit = tree.commit(8)
    interpreter = ("--python", base.python)
    for source in (f"leaky @ git+{tree.folder.as_uri()}@{commit}", tree.requirement):
        ran = run("probe", "run", "--probe", probe, *interpreter, "--with", source, "--format", "json")
        assert ran.code == 1, ran.err
    tree.write(16)
    ran = run("probe", "run", "--probe", probe, *interpreter, "--with", tree.requirement, "--format", "json")
    assert json.loads(ran.out)[0]["results"] == {"held_bytes": 16}
    options = (
        "--package",
        "leaky",
        "--versions",
        "==1.0",
        *interpreter,
        "--exclude-newer",
        "never",
        "--format",
        "json",
    )
    ran = run("sweep", "--probe", probe, *options)
    assert json.loads(ran.out)["series"][0]["values"] == {"1.0": 2}
    listed = json.loads(run("evidence", "list", "--format", "json").out)
    assert len({one["versions"]["leaky"] for one in listed}) == len(listed) == 4
    assert len(json.loads(run("evidence", "list", "--package", "leaky==1.0", "--format", "json").out)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--commits", "v1"), "--commits 'v1' is not A..B"),
        (("--commits", "v1..v9"), "--commits v1..v9"),
        (("--commits", "v2..v1"), "no commit lies between the two"),
        (("--commits", "v1..v2", "--versions", ">1"), "two answers to one question"),
    ],
)
@pytest.mark.usefixtures("index", "history")
def test_what_is_no_history_is_refused(tree: Tree, probe: str, arguments: tuple[str, ...], message: str) -> None:
    ran = run("sweep", probe, "--package", "leaky", "--source", str(tree.folder), "--dry-run", *arguments)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    ("text", "message"),
    [("import torch_that_is_not_here\n", "cannot be read as a probe"), ('"""A."""\n', "does not define PACKAGES")],
)
def test_a_file_that_is_no_probe_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    ran = run("probe", "run", "--probe", str(path))
    assert ran.code == 2
    assert message in ran.err
