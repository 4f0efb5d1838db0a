"""`compatcheck check`: do these files have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.help import Command


@click.command("check", cls=Command)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take(
    "check",
    "environment",
    "image",
    "inside image",
    "files",
    "run",
    "select",
    "rules",
    "gate",
    "security",
    "report",
    "language",
)
def command(**given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Check requirement files, locks and training configurations, alone or together; directories are walked.

    PATH `-` reads one input from standard input and tells by its content what it is: `pip freeze | compatcheck check -`.
    Without a PATH the runs of the policy are checked. Looks at no installed package unless --python or --prefix is given.
    """
    return execute(*split(given, files=True))
