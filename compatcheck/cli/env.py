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
@click.option("--dump", is_flag=True, help="Print everything known about the environment, and check nothing.")
def command(dump: bool, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Check what is installed in one interpreter, with this model, training configuration and hardware.

    Reads metadata only. Without --python or --prefix: the active virtual or conda environment, else the one compatcheck
    runs in.
    """
    request, checks, output = split(given)
    if dump:
        return print_dump(request, output.format_name)
    return execute(request, checks, output)


def split(given: dict[str, Any]) -> tuple[Request, Checks, Output]:
    """Sort click's parameters into what is read, what is checked and what is written."""
    request = Request(**{name: given[name] for name in Request._fields if name in given})
    checks = Checks(**{name: given[name] for name in Checks._fields if name in given and given[name] is not None})
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return request, checks._replace(fail_on=given.get("fail_on") or DEFAULT_FAIL_ON), output


def print_dump(request: Request, format_name: str) -> int:
    """Print everything known about an environment, as text or JSON."""
    import os  # noqa: PLC0415 (only for the dump)

    from compatcheck.collectors.dump import collect_dump, format_dump  # noqa: PLC0415 (only for the dump)
    from compatcheck.collectors.interpreter import locate  # noqa: PLC0415 (only for the dump)

    dump = collect_dump(locate(request.python, request.prefix, os.environ), os.environ)
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps(dump, indent=2, ensure_ascii=False))
    else:
        click.echo(format_dump(dump))
    return 0
