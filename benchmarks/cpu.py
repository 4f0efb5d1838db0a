"""CPU time of whole processes, children included, from the kernel's own accounts (`wait4`).

The same accounts carry a peak of resident memory that begins at that of the parent, so it is not used.
"""

from __future__ import annotations

import os
import pty
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TABOO = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables a child must not inherit: the first makes Python compile everything on every run."""


class Run(NamedTuple):
    """One finished process."""

    cpu_seconds: float
    """User and system time of the process and of the children it waited for."""
    exit_code: int
    output: bytes
    """What it wrote to standard output and standard error together."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables that would change what is measured."""
    return {name: value for name, value in os.environ.items() if name not in TABOO}


def run(command: Sequence[str], *, terminal: bool = False, environ: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end and return what it cost.

    Args:
        command: absolute path of the program, and its arguments.
        terminal: give it a pseudo-terminal instead of a pipe.
        environ: its environment; by default this process's, cleaned.
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, theirs, 1),
        (os.POSIX_SPAWN_DUP2, theirs, 2),
    ]
    child = os.posix_spawn(command[0], list(command), environ or clean_environment(), file_actions=actions)
    os.close(theirs)
    chunks: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(ours, chunks))
    reader.start()
    _, status, usage = os.wait4(child, 0)
    reader.join()
    os.close(ours)
    return Run(
        usage.ru_utime + usage.ru_stime,
        os.waitstatus_to_exitcode(status),
        b"".join(chunks),
    )


def _drain(descriptor: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # a pseudo-terminal whose last user has gone reads as an error on Linux
            return
        if not chunk:
            return
        chunks.append(chunk)
