"""Every example of a help runs, in a project like that of its reader, and ends with the code that stands beside it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import click
import pytest

from compatcheck.cli.group import COMMANDS, LazyGroup, group
from compatcheck.cli.help import Lesson, find_lesson, read_codes, read_lessons
from compatcheck.core.node import write_line
from tests import ROOT
from tests.cli.run_cli import run as run_here
from tests.unit.fleet.drawn_nodes import draw

PAGES = (ROOT / "README.md", ROOT / "docs" / "ci.md")
EXAMPLES = [pytest.param(code, text, id=text) for lesson in read_lessons().values() for code, text in lesson.examples]


def commands() -> dict[str, click.Command]:
    """Return every command and command of a group by its name; that of the program itself is empty."""
    assert isinstance(group, LazyGroup)
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in COMMANDS}
    inner = {
        f"{name} {one}": command
        for name, outer in found.items()
        if isinstance(outer, click.Group)
        for one, command in outer.commands.items()
    }
    return {"": group, **{name: command for name, command in found.items() if command is not None}, **inner}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of two commits with everything that examples name, and programs that they call."""
    folder = tmp_path_factory.mktemp("help")
    project, programs = folder / "project", folder / "bin"
    shutil.copytree(ROOT / "fixtures" / "upgrade", project)
    (project / "requirements.txt").write_text((project / "before.txt").read_text())
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    for step in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "before"]):
        subprocess.run([*git, *step], cwd=project, check=True)
    (project / "requirements.txt").write_text((project / "after.txt").read_text())
    subprocess.run([*git, "commit", "-q", "-a", "-m", "after"], cwd=project, check=True)
    (project / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.31 GiB.\n")
    (project / "rules" / "accelerate").mkdir(parents=True)
    shutil.copy(ROOT / "rules" / "accelerate" / "free-memory-keeps-engine.yaml", project / "rules" / "accelerate")
    make_environment(project / ".venv")
    make_environment(folder / "root" / "opt" / "venv")
    with tarfile.open(project / "image.tar", "w") as archive:
        archive.add(folder / "root", arcname=".")
    (project / "dumps").mkdir()
    for node in (draw("node1"), draw("node2"), draw("node3", {"torch": "2.5.1"})):
        (project / "dumps" / f"{node.name}.json").write_text(write_line(node))
    shutil.copytree(ROOT / "fixtures" / "measurements" / "zero3_release", project / "measured")
    programs.mkdir()
    for name, line in {
        "compatcheck": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m compatcheck "$@"',
        "docker": "exec cat image.tar",
        "pip": "cat before.txt",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    return project


def make_environment(prefix: Path) -> None:
    """Write an environment of a training stack: its metadata, and an interpreter that is never run."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").write_text("")
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    for line in (ROOT / "fixtures" / "upgrade" / "after.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        info = prefix / "lib" / "python3.12" / "site-packages" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def run(command: str, project: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    hidden = {"FORCE_COLOR", "VIRTUAL_ENV", "CONDA_PREFIX"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        env={
            **{key: value for key, value in os.environ.items() if key not in hidden},
            "PATH": f"{project.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "COMPATCHECK_EVIDENCE": str(tmp_path / "evidence.sqlite3"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("code", "text"), EXAMPLES)
def test_an_example_runs(code: str, text: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "project"
    shutil.copytree(project, copy, symlinks=True)
    shutil.copytree(project.parent / "bin", tmp_path / "bin")
    if code == "N" and "--dry-run" in options_of(text):
        code, text = "0", f"{text} --dry-run"
    if code == "N":  # what it asks for exists; running it needs an index or torch
        assert parses(text)
        return
    if "evidence" in text:
        run_here("evidence", "import", copy / "measured")
        (copy / "cuda.jsonl").write_text("")
    if {"|", ">", "<"} & set(text.split()):
        done = run(text, copy, tmp_path)
        assert str(done.returncode) == code, done.stdout + done.stderr
        return
    monkeypatch.chdir(copy)
    ran = run_here(*shlex.split(text)[1:])
    assert str(ran.code) == code, ran.out + ran.err


def parses(text: str) -> bool:
    words = shlex.split(text)[1:]
    name = next(
        name for name in sorted(commands(), key=len, reverse=True) if words[: len(name.split())] == name.split()
    )
    commands()[name].make_context(name, words[len(name.split()) :])
    return True


def options_of(text: str) -> set[str]:
    words = text.split()[1:3]
    found = commands().get(" ".join(words)) or commands()[words[0]]
    return {option for parameter in found.params for option in parameter.opts}


@pytest.mark.parametrize("name", commands())
def test_every_help_teaches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lesson = read_lessons()[name]
    shown = run_here(*name.split(), "--help").out
    lines = shown.splitlines()
    assert lesson.examples
    assert (ROOT / "docs" / lesson.page).is_file()
    assert lines[-1].endswith(f"/docs/{lesson.page}")
    ends = next(number for number in range(lines.index("Examples:"), len(lines)) if not lines[number].strip())
    assert ends <= 24, "examples are on the first screen of a terminal"
    joined = shown.replace(" \\\n", " ")
    assert all(" ".join(text.split()) in " ".join(joined.split()) for _, text in lesson.examples)
    assert run_here("help", *name.split()).out == shown
    if " " in name:
        outer, inner = name.split()
        assert run_here(outer, "help", inner).out == shown


def test_lessons_are_about_commands() -> None:
    assert set(read_lessons()) == set(commands())
    assert told("check") == read_lessons()["check"]


def told(name: str) -> Lesson:
    return find_lesson(click.Context(commands()[name], info_name=f"compatcheck {name}"))


@pytest.mark.parametrize("name", commands())
def test_exit_codes_speak_of_the_options_there_are(name: str) -> None:
    taken = {option for parameter in commands()[name].params for option in parameter.opts}
    for words in told(name).codes.values():
        assert set(re.findall(r"--[\w-]+", words)) <= taken
        assert words.count("(") == words.count(")")
        assert words[0] not in " ;"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_exit_codes_are_told_in_the_same_words(page: Path) -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(code): words for code, words in rows} == read_codes()


def test_topics_of_help() -> None:
    codes = run_here("help", "exit-codes").out
    assert [line.split()[0] for line in codes.splitlines() if re.match(r"  \d", line)] == [
        str(one) for one in read_codes()
    ]
    options = run_here("help", "options").out
    named = {
        option
        for command in commands().values()
        for parameter in command.params
        if getattr(getattr(parameter, "row", None), "heading", None)
        for option in parameter.opts
        if option.startswith("--")
    }
    assert {one for one in named if not re.search(rf"^  (-\w, )?{one}\b", options, re.MULTILINE)} == set()
    wrong = run_here("help", "rules", "nothing")
    assert (wrong.code, "There is no command 'rules nothing'." in wrong.err) == (2, True)
    assert "Did you mean 'options'?" in run_here("help", "optoins").err


def test_the_address_of_a_page_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from email.message import Message
    from importlib import metadata

    from compatcheck.cli.help import find_page

    assert find_page("ci.md") == (ROOT / "docs" / "ci.md").as_uri()
    stated = Message()
    stated["Project-URL"] = "Documentation, https://example.org/docs/"
    monkeypatch.setattr(metadata, "metadata", lambda _: stated)
    assert find_page("ci.md") == "https://example.org/docs/ci.md"
