"""The log of an internal error: enough to report it, nothing secret."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback

import click

from compatcheck import __version__


def report_crash(arguments: list[str]) -> None:
    """Write the traceback of the current exception to a file and say where; options keep their names only."""
    shown = [argument.split("=", 1)[0] for argument in arguments]
    text = (
        f"compatcheck {__version__} on Python {sys.version.split()[0]}, {platform.system()} {platform.machine()}\n"
        f"arguments: {' '.join(shown)}\n\n{traceback.format_exc()}"
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
    click.echo(f"internal error: {kind.__name__ if kind else 'error'}: {error}", err=True)
    click.echo(f"  this is a bug in compatcheck; please report it with {log.name}", err=True)
