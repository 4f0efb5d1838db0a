"""Run the command line in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from typing import NamedTuple

from compatcheck.cli.__main__ import main


class Ran(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Ran:
    """Run one command and return its exit code and what it wrote."""
    out, err = io.StringIO(), io.StringIO()
    code = -1
    with redirect_stdout(out), redirect_stderr(err):
        try:
            copy_context().run(
                main, [str(argument) for argument in arguments]
            )  # what one run inspects is none of the next
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())
