"""A training that a program of Python starts is named, however its command is put together; the work for it is bounded."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.launch_script.python_launches import find_in_python

HEAD = "import subprocess\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = ['torchrun', 'train.py']\na += ['--deepspeed', x]\nsubprocess.run(a)", 3),
        ("a = 'torchrun train.py'\nb = a + ' --deepspeed ' + path\nsubprocess.run(b, shell=True)", 3),
        ("rest = ['--deepspeed', 'ds.json']\nsubprocess.run(['torchrun', 'train.py', *rest])", 3),
        ("subprocess.run('torchrun train.py --deepspeed ds.json'.split())", 2),
        ("subprocess.run(\" \".join(['torchrun', 'train.py', '--deepspeed', 'ds.json']), shell=True)", 2),
    ],
)
def test_a_command_that_is_put_together_is_named(text: str, line: int) -> None:
    found = find_in_python("start.py", HEAD + text + "\n")
    assert found is not None
    assert (found.source.line, found.reason) == (line, "starts a training in a way that is not read: train.py")


@pytest.mark.parametrize(
    "text",
    [
        "a = ['--deepspeed', 'ds.json']\na += ['train.py']\nsubprocess.run(['ls'])",
        "help = 'use torchrun'\nhelp += ' train.py --deepspeed ds.json'\nprint(help)",
        "raise ValueError('torchrun train.py --deepspeed ds.json')",
        "def f(:",
    ],
)
def test_what_starts_none_is_not_named(text: str) -> None:
    assert find_in_python("start.py", f"{HEAD}# deepspeed\n{text}\n") is None


def test_text_that_doubles_is_given_up_and_said() -> None:
    text = f"{HEAD}a = 'deepspeed '\n" + "a += a\n" * 200
    found = find_in_python("start.py", text)
    assert found is not None
    assert "more than 4 MiB of text" in found.reason
