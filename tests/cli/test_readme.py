"""The README's tour shows what the commands print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests import ROOT

README = ROOT / "README.md"
BLOCKS = re.findall(r"```console\n\$ (compatcheck [^\n]*)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def run(command: str) -> str:
    """Run a compatcheck command in the checkout and hide what changes with every release of the rules."""
    environment = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "COLUMNS"}}
    done = subprocess.run(
        [sys.executable, "-m", "compatcheck", *shlex.split(command)[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return mask(done.stdout)


def mask(text: str) -> str:
    text = re.sub(r"db \S+ \(\d+ rules, [0-9a-f]+\) · [\d.]+ s", "db … · … s", text)
    return text.rstrip() + "\n"


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_tour_shows_what_the_command_prints(command: str, shown: str) -> None:
    assert mask(shown) == run(command)


def test_the_tour_has_commands() -> None:
    assert len(BLOCKS) == 4


def write() -> None:
    """Refresh the tour: ``python tests/cli/test_readme.py``."""
    text = README.read_text(encoding="utf-8")
    for command, shown in BLOCKS:
        old = f"```console\n$ {command}\n{shown}```"
        text = text.replace(old, f"```console\n$ {command}\n{run(command)}```")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
