"""`compatcheck env`: does what is installed have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.output import FORMATS


@click.command("env", cls=options.GroupedCommand, short_help="Check an installed environment.")
@options.environment_options
@options.input_options
@options.check_options
@options.output_options(FORMATS)
@click.option("--dump", is_flag=True, help="Print everything known about the environment, and check nothing.")
def command(dump: bool, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Check what is installed in one interpreter, with this model, training configuration and hardware.

    Reads metadata only. Without --python or --prefix: the active virtual or conda environment, else the one compatcheck
    runs in.
    """
    if dump:
        return print_dump(given)
    return execute(*split(given, files=False))


def print_dump(given: dict[str, Any]) -> int:
    """Print everything known about an environment, as text or JSON."""
    import os  # noqa: PLC0415 (only for the dump)

    from compatcheck.collectors.python.dump import collect_dump, format_dump  # noqa: PLC0415 (only for the dump)
    from compatcheck.collectors.python.interpreter import locate  # noqa: PLC0415 (only for the dump)

    dump = collect_dump(locate(given["python"], given["prefix"], os.environ), os.environ)
    if given["format_name"] == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps(dump, indent=2, ensure_ascii=False))
    else:
        click.echo(format_dump(dump))
    return 0
