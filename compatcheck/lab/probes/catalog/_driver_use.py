"""What a fresh process takes on the device, as the driver counts it: shared by probes of what lies outside the allocator."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

_CHILD = """
import sys
import torch
torch.cuda.init()
torch.cuda.synchronize()
{work}
torch.cuda.synchronize()
print("ready", torch.cuda.memory_reserved(), flush=True)
sys.stdin.read()
"""


class Use(NamedTuple):
    """Bytes of one process on the device."""

    device_bytes: int
    """As the driver counts: what became used while the process came up."""
    reserved_bytes: int
    """Of these, held by torch's allocator."""

    @property
    def outside_bytes(self) -> int:
        """Context, kernels and whatever libraries took themselves."""
        return self.device_bytes - self.reserved_bytes


def used() -> int:
    """Return the bytes of the current device in use by anyone."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def start(variables: dict[str, Any], work: str = "") -> tuple[subprocess.Popen[str], Use]:
    """Start a process that makes a context, runs some lines and waits; the caller ends it with `stop`.

    Args:
        variables: set in its environment; None takes one away.
        work: Python lines to run with torch.

    Returns:
        The process, and what it takes.

    Raises:
        RuntimeError: it ended before it was ready.
    """
    environ = dict(os.environ)
    for name, value in variables.items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    before = used()
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(work=work)],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    words = child.stdout.readline().split()
    if words[:1] != ["ready"]:
        stop(child)
        message = "the process that should hold a context ended before it was ready"
        raise RuntimeError(message)
    return child, Use(used() - before, int(words[1]))


def stop(child: subprocess.Popen[str]) -> None:
    """End a process of `start`."""
    try:
        child.communicate("", timeout=30)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        child.kill()
        child.wait()
