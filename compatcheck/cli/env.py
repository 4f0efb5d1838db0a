"""`compatcheck env`: does what is installed have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.help import Command


@click.command("env", cls=Command)
@options.take_check("environment")
def command(**given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Check what is installed in one interpreter, with this model, training configuration and hardware.

    Reads metadata only. Without --python or --prefix: the active virtual or conda environment, else .venv or venv here or
    above, else the one compatcheck runs in. One without a training stack is exit code 3.
    """
    return execute(*split(given, files=False))
