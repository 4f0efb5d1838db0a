"""`compatcheck check`: do these files have known problems?"""

from __future__ import annotations

import os
from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.help import Command
from compatcheck.core.errors import UsageError


class _CheckCommand(Command):
    """`check`, to which hooks give the names of files that a change brings in behind their options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, unless a file of a change would be taken for an option.

        Raises:
            UsageError: it would.
        """
        before = args[: args.index("--")] if "--" in args else args
        if "--hook" in before:
            odd = next((name for name in before if name.startswith("-") and os.path.lexists(name)), None)
            if odd is not None:
                msg = f"{odd!r} is an option and the name of a file here; nobody can tell which is meant"
                raise UsageError(msg, hint="rename the file")
        return super().parse_args(ctx, args)


@click.command("check", cls=_CheckCommand)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take_check("check", *options.INPUTS)
def command(**given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Check requirement files, locks and training configurations, alone or together; directories are walked.

    PATH `-` reads one input from standard input and tells by its content what it is: `pip freeze | compatcheck check -`.
    Without a PATH the runs of the policy are checked; a directory that it stands in is checked with them.
    Looks at no installed package unless --python or --prefix is given.
    """
    return execute(*split(given, files=True))
