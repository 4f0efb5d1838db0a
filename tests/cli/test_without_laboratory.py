"""Without `compatcheck.lab` everything but its own commands works, and those say what is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck.cli.laboratory import COMMANDS
from tests import ROOT

CASE = "fixtures/cases/openrlhf-llama3-70b"
PROGRAM = """
import sys
if sys.argv[1] == "without":
    sys.modules["compatcheck.lab"] = None
from compatcheck.cli.__main__ import main
main(sys.argv[2:])
"""
MISSING = "needs the measuring laboratory (compatcheck.lab), which this installation is without"
SECONDS = re.compile(r'[\d.]+ s$|(?<="seconds": )[\d.]+', re.MULTILINE)


def run(how: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, how, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    directory = tmp_path_factory.mktemp("locks")
    for name, version in {"before": "0.16.4", "after": "0.16.8"}.items():
        (directory / f"{name}.txt").write_text(f"deepspeed=={version}\n")
    return str(directory / "before.txt"), str(directory / "after.txt")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("env", "--prefix", sys.prefix, "--set", "training.zero_stage=3"), 3, id="env"),
        pytest.param(("check", CASE, "--format", "json"), 1, id="check"),
        pytest.param(("estimate", CASE, "--suggest"), 1, id="estimate"),
        pytest.param(("facts", CASE), 0, id="facts"),
        pytest.param(("explain", "deepspeed/zero3-params-kept-in-backward", CASE), 0, id="explain"),
        pytest.param(("rules", "list"), 0, id="rules list"),
        pytest.param(("--help",), 0, id="help"),
    ],
)
def test_the_product_says_the_same(arguments: tuple[str, ...], code: int) -> None:
    without, whole = run("without", *arguments), run("with", *arguments)
    assert without.returncode == whole.returncode == code, without.stderr
    assert SECONDS.sub("", without.stdout) == SECONDS.sub("", whole.stdout)
    assert without.stderr == whole.stderr


def test_two_locks_are_compared(requirements: tuple[str, str]) -> None:
    facts = ("--training", f"{CASE}/facts.yaml")
    without, whole = run("without", "diff", *requirements, *facts), run("with", "diff", *requirements, *facts)
    assert without.returncode == whole.returncode == 0, without.stderr
    assert SECONDS.sub("", without.stdout) == SECONDS.sub("", whole.stdout)
    assert "zero3-params-kept-in-backward" in without.stdout


def test_a_message_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.31 GiB.\n")
    without, whole = run("without", "oom", str(log)), run("with", "oom", str(log))
    assert without.returncode == whole.returncode == 0, without.stderr
    assert without.stdout == whole.stdout


def test_rules_are_linted_but_for_their_evidence() -> None:
    done = run("without", "rules", "lint", "rules/deepspeed")
    assert done.returncode == 0, done.stdout
    assert "probes and evidence are not checked" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_its_commands_say_what_is_missing(name: str) -> None:
    done = run("without", name, "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"`compatcheck {name}` {MISSING}" in done.stderr


@pytest.mark.parametrize(
    "command", [("estimate", CASE), ("diff", f"{CASE}/requirements.txt", f"{CASE}/requirements.txt")]
)
def test_a_trace_says_what_is_missing(command: tuple[str, ...]) -> None:
    done = run("without", *command, "--trace")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--trace {MISSING}" in done.stderr
