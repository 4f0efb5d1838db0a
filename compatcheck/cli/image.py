"""`compatcheck image`: does what a container image holds have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.execution import execute
from compatcheck.cli.help import Command


@click.command("image", cls=Command)
@options.argument("image", "TAR|DIR|-")
@options.take_check("image command", "inside image")
def command(**given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Check the environments inside a container image, without a daemon and without unpacking it.

    Reads docker archives and OCI archives (plain, gzip, zstd), OCI layouts and root directories; `-` is an archive on standard
    input: `docker save IMAGE | compatcheck image -`. Every virtual environment, conda prefix and system Python is a subject;
    findings in the one that the entry point starts decide the exit code. The image's variables take part, this machine's
    devices do not: give --gpu.
    """
    return execute(*split({**given, "here": False, "every_environment": True}, files=False))
