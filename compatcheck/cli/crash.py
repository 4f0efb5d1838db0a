"""The log of an internal error: enough to report it, nothing secret."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback

import click

from compatcheck import __version__
from compatcheck.core.redaction import redact, redact_command


def report_crash(arguments: list[str]) -> None:
    """Write the traceback of the current exception to a file and say where; credentials are taken out of both."""
    shown = redact_command(" ".join(argument.split("=", 1)[0] for argument in arguments))
    text = redact(
        f"compatcheck {__version__} on Python {sys.version.split()[0]}, {platform.system()} {platform.machine()}\n"
        f"arguments: {shown}\n\n{traceback.format_exc()}"
    )
    if os.environ.get("COMPATCHECK_DEBUG"):
        click.echo(text, err=True)
        return
    kind, error, _ = sys.exc_info()
    with tempfile.NamedTemporaryFile(
        "w",
        prefix="compatcheck-crash-",
        suffix=".log",
        delete=False,
        encoding="utf-8",
        errors="backslashreplace",
    ) as log:
        log.write(text)
    click.echo(redact(f"internal error: {kind.__name__ if kind else 'error'}: {error}"), err=True)
    click.echo(f"  this is a bug in compatcheck; please report it with {log.name}", err=True)
