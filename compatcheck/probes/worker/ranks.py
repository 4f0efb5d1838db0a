"""Start one process per rank and end all of them when one fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def launch(arguments: list[str], world_size: int) -> int:
    """Run this worker once per rank and return the first exit code that is not 0, or 0.

    Args:
        arguments: request and result file; rank 0 writes the latter, the others write nothing.
        world_size: number of ranks, all on this machine.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
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
        processes.append(subprocess.Popen([sys.executable, entry, *arguments], env=environ))
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
