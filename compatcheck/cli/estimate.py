"""`compatcheck estimate`: how much memory a run needs on each device, whether it fits, and what would make it fit."""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command


@click.command("estimate", cls=Command)
@options.argument("paths", "[PATH]...", nargs=-1)
@options.take("estimate", *options.INPUTS, "run", "language")
def command(**given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Predict what each device holds, phase by phase, from the configuration alone; nothing is run and no GPU is needed.

    With PATHs the files are read as `check` does, without them the installed environment, as `env` does. With --trace one
    training step runs on fake tensors, full size and without weights: exact, for one role without ZeRO; releases that the
    interpreter lacks are installed beside it. With --module the step is of the module that a function of yours returns.
    """
    from compatcheck.cli.estimation import execute_estimate  # noqa: PLC0415 (not for `--help`)

    return execute_estimate(**given)
