"""What a terminal shows fits 80 columns; only a word that cannot be broken, an address or a name, may be longer."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from compatcheck.core.columns import measure
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_builtin
from tests import ROOT
from tests.cli.run_cli import run

CASES = ROOT / "fixtures" / "cases"
RULES = sorted(rule.id for rule in RuleSet((open_builtin(),)).all_rules())
INCIDENT = CASES / "openrlhf-llama3-70b"


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)


def too_long(text: str) -> list[str]:
    """Return the lines that could be broken and are not: no title, command to copy or one word with a label before an address."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("get it")]
    wide = [line.removeprefix("- ").split() for line in lines if measure(line) > 80 and line[0] != "#"]
    return [" ".join(words) for words in wide if len(words) > 1 + ("://" in words[-1])]


@pytest.mark.parametrize("command", ["rules list", "rules list --all", "facts --names", "doctor", "help options"])
def test_lists_fit(command: str) -> None:
    assert too_long(run(*shlex.split(command)).out) == []


UPGRADE = "fixtures/upgrade/before.txt fixtures/upgrade/after.txt --training fixtures/upgrade/train.yaml"


@pytest.mark.parametrize(
    "command", ["check -q fixtures/cases/openrlhf-llama3-70b", f"diff -q {UPGRADE} --gpu 8xH100-80GB --nodes 2"]
)
def test_of_a_quiet_report_only_findings_are_one_line_each(command: str) -> None:
    lines = run(*shlex.split(command)).out.splitlines()
    assert [line for line in lines if measure(line) > 80 and not line.startswith("ENTERED ")] == []


def test_a_comparison_never_breaks_a_command() -> None:
    lines = run("diff", *shlex.split(UPGRADE), "--gpu", "8xH100-80GB", "--nodes", "2").out.splitlines()
    assert [line.strip() for line in lines if "pip install" in line] == ["pip install 'deepspeed==0.16.8'"] * 2


def test_pages_of_rules_fit() -> None:
    assert {name: lines for name in RULES if (lines := too_long(run("rules", "show", name).out))} == {}


def test_explanations_fit() -> None:
    shown = {name: run("explain", name, str(INCIDENT.relative_to(ROOT))).out for name in RULES[::4]}
    assert {name: lines for name, text in shown.items() if (lines := too_long(text))} == {}


@pytest.mark.parametrize(
    "case", sorted(path for path in CASES.iterdir() if path.is_dir())[::6], ids=lambda path: path.name
)
def test_facts_fit(case: Path) -> None:
    assert too_long(run("facts", str(case.relative_to(ROOT))).out) == []


@pytest.mark.parametrize(
    "log",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.31 GiB. GPU 0 has a total capacity of 79.10 GiB",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        (
            "deepspeed 0.15.4, upgraded from transformers 4.46.0 to 4.57.0\ntorch.OutOfMemoryError: CUDA out of memory. "
            "Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 512.00 MiB is free. Including "
            "non-PyTorch memory, this process has 78.60 GiB memory in use."
        ),
    ],
    ids=["asked", "kernel", "thread"],
)
def test_explained_messages_fit(log: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(log)
    for files in ((), (str(INCIDENT),)):
        assert too_long(run("oom", str(tmp_path / "train.log"), *files).out) == []


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "deepspeed/zero3"),
        ("check", "nothing_here"),
        ("confirm", "deepspeed/zero3-params-kept-in-backward", "--no-store", "--python", "/usr/bin/nothing"),
        ("estimate", str(INCIDENT), "--trace", "--python", "/usr/bin/nothing"),
    ],
    ids=lambda words: words[0],
)
def test_what_standard_error_says_fits(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "nothing_here").mkdir()
    ran = run(*(str(tmp_path / word) if word == "nothing_here" else word for word in words))
    lines = [line for line in ran.err.splitlines() if not line.startswith("error: ")]
    assert lines
    assert too_long("\n".join(lines)) == []


def test_a_dry_run_does_not_say_that_it_runs_code() -> None:
    ran = run("confirm", "deepspeed/zero3-params-kept-in-backward", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
