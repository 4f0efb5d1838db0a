"""The command line introduces itself: help, version, completion, and the README's list of commands."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from compatcheck import __version__
from compatcheck.cli.group import COMMANDS
from tests import ROOT

SCRIPT = Path(sys.executable).with_name("compatcheck")
RULE_COMMANDS = ["list", "show", "lint", "new", "stale", "export"]
EVIDENCE_COMMANDS = ["list", "show", "export", "import"]
PLACES = [
    [],
    *([name] for name in COMMANDS),
    *(["rules", name] for name in RULE_COMMANDS),
    *(["evidence", name] for name in EVIDENCE_COMMANDS),
]


def run(*arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    hidden = {"FORCE_COLOR", "COLUMNS"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [sys.executable, "-m", "compatcheck", *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONIOENCODING": "utf-8", **(variables or {})},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def complete(*words: str) -> list[str]:
    variables = {
        "_COMPATCHECK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["compatcheck", *words]),
        "COMP_CWORD": str(len(words)),
    }
    return [line.partition(",")[2] for line in run(variables=variables).stdout.splitlines()]


def commands_in(text: str) -> list[str]:
    return re.findall(r"^  (\w+) ", text.partition("\nCommands:\n")[2].partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
def test_help_fits_eighty_columns(place: list[str]) -> None:
    done = run(*place, "--help", variables={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: {' '.join(['compatcheck', *place])} ")
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert run(*place, "-h").stdout == run(*place, "--help").stdout


def test_help_lists_every_command_with_its_own_line() -> None:
    text = run("--help").stdout
    assert commands_in(text) == list(COMMANDS)
    assert sorted(commands_in(run("rules", "--help").stdout)) == sorted(RULE_COMMANDS)


def test_the_page_lists_the_commands() -> None:
    table = (
        (ROOT / "docs" / "commands.md")
        .read_text(encoding="utf-8")
        .partition("| command | answers |\n")[2]
        .partition("\n\n")[0]
    )
    cells = re.findall(r"^\| `compatcheck ([^`]+)` \|", table, re.MULTILINE)
    assert [cell.split()[0] for cell in cells] == commands_in(run("--help").stdout)
    rules = next(cell for cell in cells if cell.startswith("rules "))
    listed = rules.removeprefix("rules ").replace("\\", "").split(" | ")
    assert sorted(listed) == sorted(commands_in(run("rules", "--help").stdout))


@pytest.mark.skipif(not SCRIPT.exists(), reason="compatcheck is not installed beside this interpreter")
def test_console_script_and_module_say_the_same() -> None:
    for arguments in (["--version"], ["--help"], ["rules", "list"]):
        done = subprocess.run([SCRIPT, *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode, done.stdout) == (0, run(*arguments).stdout)


def test_version() -> None:
    assert run("--version").stdout == f"compatcheck {__version__}\n"


def test_no_arguments_and_nothing_on_standard_input_are_told_in_a_sentence() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: nothing on standard input")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    done = run(variables={"_COMPATCHECK_COMPLETE": f"{shell}_source"})
    assert done.returncode == 0, done.stderr
    assert f"_COMPATCHECK_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ch"], ["check"]),
        ([""], list(COMMANDS)),
        (["env", "--mod"], ["--model"]),
        (["rules", "l"], ["lint", "list"]),
        (["check", "--format", "sa"], ["sarif"]),
    ],
    ids=" ".join,
)
def test_completion_knows_lazy_commands(words: list[str], wanted: list[str]) -> None:
    assert sorted(complete(*words)) == sorted(wanted)


def test_rule_page_on_a_terminal() -> None:
    parent, child = pty.openpty()
    arguments = [sys.executable, "-m", "compatcheck", "rules", "show", "deepspeed/zero3-params-kept-in-backward"]
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(arguments, cwd=ROOT, stdin=child, stdout=child, stderr=child, env=variables)
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait() == 0
    assert shown.decode().replace("\r\n", "\n") == run(*arguments[3:]).stdout
    assert b"ZeRO-3 keeps gathered parameters" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("output", ["text", "json", "markdown"])
def test_a_limited_encoding_stops_no_report(encoding: str, output: str) -> None:
    arguments = ["check", "fixtures/cases/openrlhf-llama3-70b", "--format", output]
    plain, limited = run(*arguments), run(*arguments, variables={"PYTHONIOENCODING": encoding})
    assert (limited.returncode, limited.stderr) == (1, "")
    seconds = re.compile(r'[\d.]+ s$|(?<="seconds": )[\d.]+', re.MULTILINE)
    assert seconds.sub("", limited.stdout) == seconds.sub("", plain.stdout)


def test_a_file_name_that_is_no_text_stops_no_report(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    requirements = tmp_path / os.fsdecode(b"caf\xe9") / "requirements.txt"
    requirements.write_text("accelerate==0.20.3\ntorch==2.0\n???\n")
    for output in ("text", "json", "sarif", "junit", "markdown", "github"):
        done = run("check", str(requirements.parent), "--format", output)
        assert done.returncode in {0, 1, 4}, done.stderr
        assert "\\udce9" in done.stdout or output in {"sarif", "junit", "github"}
        if output in {"json", "sarif"}:
            json.loads(done.stdout)
