"""`compatcheck facts`: what was understood."""

from __future__ import annotations

import os
from typing import Any

import click

from compatcheck.checking.asked import inspect
from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.progress import showing_progress
from compatcheck.core.errors import EXIT_CLEAN
from compatcheck.core.language import speaking
from compatcheck.core.terminal import make_harmless
from compatcheck.rules.locate import open_builtin, open_rules


@click.command("facts", cls=Command)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take("facts", *options.INPUTS, "run", "language")
def command(names: bool, format_name: str, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Show every fact with its value, origin and line; conflicts, `auto` values nobody fills in, unread keys.

    With PATHs the files are read, without them the installed environment, as `check` and `env` do. `--format yaml` writes a
    facts file that can be given back with --training.
    """
    from compatcheck.reporters import facts as reporter  # noqa: PLC0415 (beside its use)

    if names:
        from compatcheck.rules.vocabulary import vocabulary  # noqa: PLC0415 (only to list it)

        devices = tuple(name for section in ("gpus", "instances") for name in open_builtin().section(section))
        click.echo(reporter.format_names(tuple(vocabulary().values()), {"hardware.gpu": devices}))
        return EXIT_CLEAN
    from compatcheck.checking.description import describe  # noqa: PLC0415 (beside its use)

    inspection = inspect(given, files=bool(given["paths"] or given["run"]))
    with showing_progress():
        found = describe(inspection, open_rules(), os.environ)
    with speaking(os.environ, format_name):
        click.echo(make_harmless(reporter.FORMATTERS[format_name](found.subjects, found.skipped)), nl=False)
    return found.exit_code
