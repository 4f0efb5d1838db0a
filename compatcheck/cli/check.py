"""`compatcheck check`: do these files have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.output import FORMATS


@click.command("check", cls=options.GroupedCommand, short_help="Check files.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@options.environment_options
@options.image_options
@options.file_options
@options.input_options
@options.check_options
@options.output_options(FORMATS)
@click.option(
    "--hook",
    is_flag=True,
    help="PATHs are files a commit touches: check what belongs to them in this directory, pass over all others.",
)
def command(**given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Check requirement files, locks and training configurations, alone or together; directories are walked.

    PATH `-` reads one input from standard input and tells by its content what it is: `pip freeze | compatcheck check -`.
    Without a PATH the runs of the policy are checked. Looks at no installed package unless --python or --prefix is given.
    """
    return execute(*split(given, files=True))
