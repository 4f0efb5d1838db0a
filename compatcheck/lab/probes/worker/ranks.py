"""Start one process per rank and end all of them when one fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def launch(command: list[str], world_size: int) -> int:
    """Run a Python program once per rank and return the first exit code that is not 0, or 0.

    Args:
        command: the program and its arguments.
        world_size: number of ranks, all on this machine.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(world_size):
        environ = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "LOCAL_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        processes.append(subprocess.Popen([sys.executable, *command], env=environ))
    try:
        while True:
            codes = [process.poll() for process in processes]
            failed = [code for code in codes if code]
            if failed or all(code == 0 for code in codes):
                return failed[0] if failed else 0
            time.sleep(0.05)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
