"""`compatcheck mcp`: answers for an assistant."""

from __future__ import annotations

import click

from compatcheck.cli import options
from compatcheck.cli.help import Command
from compatcheck.core.errors import EXIT_CLEAN, UsageError


@click.command("mcp", cls=Command)
@options.take("mcp")
def command(root: str) -> int:
    """Serve check, estimate and oom over the Model Context Protocol, on standard input and output.

    Tools only read, and only below --root; nothing is written, fetched or run. Needs the package `mcp`.
    """
    try:
        from compatcheck.integrations.mcp_server import serve  # noqa: PLC0415 (an optional package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"mcp", "pydantic"}:
            raise
        from compatcheck.core.installation import tell_remedy  # noqa: PLC0415 (only where it is missing)

        raise UsageError("the package mcp is not installed", hint=tell_remedy("mcp")) from None
    serve(root)
    return EXIT_CLEAN
