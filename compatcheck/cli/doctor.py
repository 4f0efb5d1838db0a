"""`compatcheck doctor`: what this installation can do, and how to get the rest."""

from __future__ import annotations

import os

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.cli.laboratory import is_installed
from compatcheck.core.errors import EXIT_CLEAN
from compatcheck.core.language import speaking
from compatcheck.core.terminal import make_harmless
from compatcheck.rules.locate import open_rules


@click.command("doctor", cls=Command)
@options.take("text json", "language")
def command(format_name: str) -> int:
    """Show what this installation has of what commands need, and how to get the rest.

    Reads metadata and asks programs of this machine for their version; nothing of an environment is run, and no network used.
    """
    from compatcheck.checking.installation import examine  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters import installation as reporter  # noqa: PLC0415 (beside its use)

    found = examine(open_rules(), os.environ, laboratory=is_installed())
    with speaking(os.environ, format_name):
        text = reporter.format_json(found) if format_name == "json" else reporter.format_text(found)
    click.echo(make_harmless(text), nl=False)
    return EXIT_CLEAN
