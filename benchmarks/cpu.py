"""CPU time of whole processes, children included, from the kernel's own accounts (`wait4`).

The same accounts carry a peak of resident memory that begins at that of the parent, so it is not used.
"""

from __future__ import annotations

import os
import pty
import signal
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TABOO = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables a child must not inherit: the first makes Python compile everything on every run."""

GRACE_SECONDS = 5.0
"""How long output is awaited after a process has ended; a child it left behind may hold the pipe open."""


class Run(NamedTuple):
    """One finished process."""

    cpu_seconds: float
    """User and system time of the process and of the children it waited for."""
    exit_code: int
    output: bytes
    """What it wrote to standard output and standard error together."""
    elapsed_seconds: float = 0.0
    """From start to end on the clock."""
    timed_out: bool = False
    """It was still running at its limit, and was killed with its children."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the variables that would change what is measured."""
    return {name: value for name, value in os.environ.items() if name not in TABOO}


def run(
    command: Sequence[str],
    *,
    terminal: bool = False,
    environ: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> Run:
    """Run a command to its end and return what it cost.

    Args:
        command: absolute path of the program, and its arguments.
        terminal: give it a pseudo-terminal instead of a pipe.
        environ: its environment; by default this process's, cleaned.
        timeout_seconds: when to kill it; never by default.
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, theirs, 1),
        (os.POSIX_SPAWN_DUP2, theirs, 2),
    ]
    environ = environ or clean_environment()
    started = time.monotonic()
    child = os.posix_spawn(command[0], list(command), environ, file_actions=actions, setpgroup=0)
    os.close(theirs)
    chunks: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(ours, chunks), daemon=True)
    reader.start()
    killed = threading.Event()
    killer = threading.Timer(timeout_seconds or 0, _kill_group, args=(child, killed))
    if timeout_seconds is not None:
        killer.start()
    _, status, usage = os.wait4(child, 0)
    elapsed = time.monotonic() - started
    killer.cancel()
    reader.join(GRACE_SECONDS)
    if not reader.is_alive():
        os.close(ours)
    return Run(
        usage.ru_utime + usage.ru_stime,
        os.waitstatus_to_exitcode(status),
        b"".join(chunks),
        elapsed,
        killed.is_set(),
    )


def _kill_group(child: int, killed: threading.Event) -> None:
    killed.set()
    os.killpg(child, signal.SIGKILL)


def _drain(descriptor: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # a pseudo-terminal whose last user has gone reads as an error on Linux
            return
        if not chunk:
            return
        chunks.append(chunk)
