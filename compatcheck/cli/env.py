"""`compatcheck env`: does what is installed have known problems?"""

from __future__ import annotations

import os
from typing import Any

import click

from compatcheck.checking.asked import inspect
from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.help import Command


@click.command("env", cls=Command)
@options.take_check("env", "environment")
def command(dump: bool, **given: Any) -> int:  # noqa: ANN401, FBT001 (click's signature)
    """Check what is installed in one interpreter, with this model, training configuration and hardware.

    Reads metadata only. Without --python or --prefix: the active virtual or conda environment, else .venv or venv here or
    above, else the one compatcheck runs in. One without a training stack is exit code 3.
    """
    return write_dump(given) if dump else execute(*split(given, files=False))


def write_dump(given: dict[str, Any]) -> int:
    """Write this node as a line for `compatcheck fleet merge`."""
    from compatcheck.core.errors import EXIT_CLEAN  # noqa: PLC0415 (beside its use)
    from compatcheck.core.node import write_line  # noqa: PLC0415 (beside its use)
    from compatcheck.fleet.dump import describe_node  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)

    inspection = inspect(given, files=False, on_targets=False)
    rules = open_rules(given["rule_directories"])
    click.echo(write_line(describe_node(inspection.requests[0], rules, os.environ)), nl=False)
    return EXIT_CLEAN
