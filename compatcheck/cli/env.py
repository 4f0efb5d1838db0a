"""`compatcheck env`: does what is installed have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.inputs import Request
from compatcheck.cli.run import DEFAULT_FAIL_ON, FORMATS, Checks, Output, execute


@click.command("env", cls=options.GroupedCommand, short_help="Check an installed environment.")
@options.environment_options
@options.input_options
@options.check_options
@options.output_options(FORMATS)
@click.option("--dump", is_flag=True, help="Print everything known about the environment as JSON, and check nothing.")
def command(dump: bool, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Check what is installed in one interpreter, with this model, training configuration and hardware.

    Reads metadata only. Without --python or --prefix: the active virtual or conda environment, else the one compatcheck
    runs in.
    """
    request, checks, output = split(given)
    if dump:
        return print_dump(request)
    return execute(request, checks, output)


def split(given: dict[str, Any]) -> tuple[Request, Checks, Output]:
    """Sort click's parameters into what is read, what is checked and what is written."""
    request = Request(**{name: given[name] for name in Request._fields if name in given})
    checks = Checks(**{name: given[name] for name in Checks._fields if name in given and given[name] is not None})
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return request, checks._replace(fail_on=given.get("fail_on") or DEFAULT_FAIL_ON), output


def print_dump(request: Request) -> int:
    """Print the dump of an environment."""
    import json  # noqa: PLC0415 (only for the dump)
    import os  # noqa: PLC0415 (only for the dump)

    from compatcheck.collectors.dump import dump_environment  # noqa: PLC0415 (only for the dump)

    click.echo(json.dumps(dump_environment(request.python, request.prefix, os.environ), indent=2, ensure_ascii=False))
    return 0
