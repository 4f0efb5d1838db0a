"""Completion in the shells that are here: what a person sees behind the tabulator, and how soon."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT

INTERACTIVE = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(_COMPATCHECK_COMPLETE=bash_source compatcheck)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit; compinit -u -D; eval "$(_COMPATCHECK_COMPLETE=zsh_source compatcheck)"',
    ),
}
"""How each shell is started without the person's own settings, and the line of docs/commands.md that switches it on."""
ENDS = [
    ("compatcheck check --gpu 8xH100-94", "8xH100-94GB-NVL "),
    ("compatcheck explain deepspeed/zero3-params-kept-in", "deepspeed/zero3-params-kept-in-backward "),
    ("compatcheck check --set training.zero_st", "training.zero_stage="),
    ("compatcheck env --model qwen2.5-0", "qwen2.5-0.5b "),
    ("compatcheck rules li", None),
]
"""What is typed, and the word that the shell makes of its end; None where there are several."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables with a compatcheck on the path."""
    script = tmp_path / "bin" / "compatcheck"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m compatcheck "$@"\n')
    script.chmod(0o755)
    return {
        "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "PS1": "> ",
    }


def converse(program: list[str], environment: dict[str, str], until: Callable[[str], bool], *lines: str) -> str:
    """Type lines into a program on a terminal of its own, each when it is silent; return what it showed of the last."""
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(program[0], program, environment)  # noqa: S606 (a shell is what is tested)
    shown = ""
    try:
        for line in lines:
            read(terminal, lambda _: False, silent=1.5)
            os.write(terminal, line.encode())
        shown = read(terminal, until, silent=20.0)
    finally:
        os.close(terminal)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return shown


def read(terminal: int, until: Callable[[str], bool], *, silent: float) -> str:
    shown, last = "", time.monotonic()
    while time.monotonic() - last < silent and not until(shown):
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65536).decode(errors="replace")
            except OSError:
                break
            last = time.monotonic()
    return shown


@pytest.mark.parametrize(("typed", "word"), [end for end in ENDS if end[1]], ids=lambda text: str(text).split()[-1])
@pytest.mark.parametrize("shell", INTERACTIVE)
def test_a_tabulator_completes(shell: str, typed: str, word: str, environment: dict[str, str]) -> None:
    program, switch_on = INTERACTIVE[shell]
    if shutil.which(program[0]) is None:
        pytest.skip(f"no {shell}")
    shown = converse(program, environment, lambda text: word in text, f"{switch_on}\n", f"{typed}\t")
    assert word in shown
    assert not word.endswith("=") or f"{word} " not in shown


@pytest.mark.parametrize(("typed", "word"), ENDS, ids=[typed.split()[-1] for typed, _ in ENDS])
def test_fish_completes(typed: str, word: str | None, environment: dict[str, str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish")
    switch_on = "_COMPATCHECK_COMPLETE=fish_source compatcheck | source"
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"{switch_on}; complete -C '{typed}'"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    words = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert sorted(words) == ([word.rstrip()] if word else ["lint", "list"])


def test_the_page_has_the_lines() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for shell in ("bash", "zsh"):
        assert f'eval "$(_COMPATCHECK_COMPLETE={shell}_source compatcheck)"' in page
    assert "_COMPATCHECK_COMPLETE=fish_source compatcheck | source" in page


def complete(*words: str, program: str = "import sys; from compatcheck.cli.__main__ import main; main()") -> list[str]:
    variables = {
        "_COMPATCHECK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["compatcheck", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['compatcheck']\n{program}"],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("bisect", "zero3_rel"), "plain,zero3_release"),
        (("bisect", "zero3_release", "--package", "deepsp"), "plain,deepspeed"),
        (("check", "--training", "tr"), "file,tr"),
        (("check", "fix"), "file,fix"),
        (("env", "--prefix", "x"), "dir,x"),
        (("env", "--model", "./mo"), "file,./mo"),
        (("check", "--gpu", "2xp4d."), "plain,2xp4d.24xlarge"),
        (("help", "exi"), "plain,exit-codes"),
        (("check", "--fail-on", "crit"), "plain,critical"),
        (("diff", "--fail-on", "nev"), "plain,never"),
        (("estimate", "--sweep", "seq"), "plain,sequence_length"),
        (("estimate", "--sweep", "lora_rank,seq"), "plain,lora_rank,sequence_length"),
        (("check", "--security-service", "o"), "plain,osv"),
        (("check", "--output", "jun"), "plain,junit:"),
        (("fix", "--output", "di"), "plain,diff:"),
        (("bisect", "zero3_release", "--exclude-newer", "n"), "plain,never"),
        (("check", "--select", "torch/alloc-conf"), "plain,torch/alloc-conf-new-name-ignored"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_values_are_completed(words: tuple[str, ...], wanted: str) -> None:
    assert complete(*words) == [wanted]


def test_names_of_the_policy_are_completed(tmp_path: Path) -> None:
    policy = tmp_path / "compatcheck.toml"
    policy.write_text('[runs.train]\nlock = "x.txt"\n[targets.small]\ngpu = "T4"\n')
    assert complete("check", "--policy", str(policy), "--run", "t") == ["plain,train"]
    assert complete("env", "--policy", str(policy), "--target", "") == ["plain,small"]
    policy.write_text("[")
    assert complete("check", "--policy", str(policy), "--run", "t") == [""]


def test_completing_loads_nothing_costly(tmp_path: Path) -> None:
    program = (
        "from compatcheck.cli.__main__ import main\n"
        "try: main()\n"
        f"finally: open({str(tmp_path / 'loaded')!r}, 'w').write(' '.join(sys.modules))"
    )
    assert complete("check", "--gpu", "8xH200-N", program=program) == ["plain,8xH200-NVL"]
    loaded = set((tmp_path / "loaded").read_text().split())
    assert not loaded & {
        "yaml",
        "asyncio",
        "socket",
        "sqlite3",
        "packaging.specifiers",
        "compatcheck.lab",
        "urllib.request",
    }
    assert not [name for name in loaded if re.match(r"compatcheck\.(lab|fixing|memory\.closed_form)\.", name)]
