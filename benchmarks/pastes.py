"""CPU time and memory of what is pasted to do harm: a gigabyte of log, a million fences, nested quotes, control characters.

    python benchmarks/pastes.py [--megabytes 1024] [--fences 1000000]

writes each to a temporary folder, gives it to the bare command on standard input and to `oom`, and prints Markdown. Each is
doubled once, so that growth shows; the log is not.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cpu import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB.\n"
STEP = "(WorkerDict pid={0}) step:{0} - actor/entropy:0.31 - perf/max_memory_allocated_gb:41.2 - timing_s/gen:3.1\n"
CONTROL = bytes((0x1B, 0x5B, 0x08, 0x0D, 0x0A, 0x00, 0x07, 0x9B, 0x80, 0xFF, 0x41))
MEASURE = (
    "import resource, subprocess, sys\n"
    "done = subprocess.run(sys.argv[2:], stdin=open(sys.argv[1], 'rb'), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "print(used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, done.returncode)\n"
)
"""A process that is small itself: the kernel begins a child's peak at that of its parent."""


def write_log(megabytes: int) -> Iterator[bytes]:
    """Yield a log with a message at its end."""
    size, step = 0, 0
    while size < megabytes * 2**20:
        block = "".join(STEP.format(step + place) for place in range(10_000)).encode()
        step, size = step + 10_000, size + len(block)
        yield block
    yield MESSAGE.encode()


def write_fences(number: int, inside: str) -> Iterator[bytes]:
    """Yield fences with a key each, or none, and a message behind them."""
    for place in range(number):
        yield f"```yaml\n{inside.format(place)}```\n".encode() if inside else b"```\n"
    yield MESSAGE.encode()


def write_quotes(number: int) -> Iterator[bytes]:
    """Yield lines that are quoted ever deeper."""
    for depth in range(number):
        yield b"> " * depth + b"torch==2.6.0\n"
    yield MESSAGE.encode()


def write_control(number: int) -> Iterator[bytes]:
    """Yield bytes of terminals and of no encoding."""
    drawn = random.Random(0)  # noqa: S311 (text to read, no secret)
    yield bytes(drawn.choices(CONTROL, k=number))
    yield b"\n" + MESSAGE.encode()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--fences", type=int, default=1_000_000)
    parsed = parser.parse_args()
    pastes: list[tuple[str, Callable[[], Iterator[bytes]]]] = [
        (f"a log of {parsed.megabytes} MiB", lambda: write_log(parsed.megabytes)),
    ]
    for number in (parsed.fences // 2, parsed.fences):
        pastes += [
            (f"{number} fences, nothing inside", lambda number=number: write_fences(number, "")),  # type: ignore[misc]
            (f"{number} fences with a key each", lambda number=number: write_fences(number, "a: {}\n")),  # type: ignore[misc]
        ]
    for number in (1_000, 2_000):
        pastes.append((f"quotes up to {number} deep", lambda number=number: write_quotes(number)))  # type: ignore[misc]
    for number in (2_500_000, 5_000_000):
        pastes.append((f"{number} control characters", lambda number=number: write_control(number)))  # type: ignore[misc]
    command = str(Path(sys.executable).parent / "compatcheck")
    print(
        "| paste | MiB | bare: CPU s | MiB at most | exit | `oom`: CPU s | MiB at most | exit |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "paste")
        for name, write in pastes:
            with path.open("wb") as file:
                file.writelines(write())
            cells = [f"{path.stat().st_size / 2**20:.1f}"]
            for words in (["-"], ["oom", "-"]):
                done = subprocess.run(
                    [sys.executable, "-c", MEASURE, str(path), command, *words],
                    capture_output=True,
                    check=True,
                    text=True,
                    env=clean_environment(),
                    cwd=folder,
                )
                seconds, resident, code = done.stdout.split()
                cells += [f"{float(seconds):.2f}", resident, code]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
