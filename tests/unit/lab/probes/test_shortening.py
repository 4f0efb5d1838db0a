"""A shortened program does what the whole one does, with what it needs alone."""

from __future__ import annotations

import contextlib
import io

import pytest

from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.probes.script import make_script
from compatcheck.lab.probes.shortening import shorten

PROGRAM = '''
"""What it is about."""

from __future__ import annotations

import json
import os.path

UNUSED = 1
FACTOR: int = 3
"""Said."""


class Thing:
    """A thing."""

    size: int = 2

    def __init__(self) -> None:
        """Make it."""
        self.more = self.add(1)

    def add(self, number: int) -> int:
        # Why.
        return number + helper()

    def never(self) -> str:
        return unused()


def helper() -> int:
    """Help."""
    return FACTOR


def unused() -> str:
    return json.dumps(UNUSED)


if __name__ == "__main__":
    print(Thing().more, os.path.basename("a/b"))
'''


def test_what_is_not_reached_is_left_out() -> None:
    short = shorten(PROGRAM)
    assert not {"json", "UNUSED", "unused", "never", "Why", "Said", "->"} & set(short.replace("(", " ").split())
    said = []
    for program in (PROGRAM, short):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})  # noqa: S102 (the text above)
        said.append(out.getvalue())
    assert said == ["4 b\n"] * 2


@pytest.mark.parametrize("name", probe_names())
def test_the_script_of_a_report_is_half_as_long(name: str) -> None:
    task = make_task(find_probe(name), {})
    brief = make_script(task, brief=True)
    compile(brief, name, "exec")
    assert len(brief.splitlines()) < 0.7 * len(make_script(task).splitlines())
