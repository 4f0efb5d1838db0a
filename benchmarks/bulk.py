"""CPU time and memory of `compatcheck bulk` on generated locks of uv, by their number.

    python benchmarks/bulk.py [--inputs 100 5000] [--packages 100]

One lock in twenty cannot be read. The memory is the largest of any one process: the parent, which writes the lines, or a child.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

from cpu import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cli.drawn_locks import write_locks


def main() -> None:
    """Write a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, nargs="+", default=[100, 5000])
    parser.add_argument("--packages", type=int, default=100)
    given = parser.parse_args()
    print("| locks | CPU seconds | CPU ms a lock | resident at most, MiB |\n|---:|---:|---:|---:|")
    for count in given.inputs:
        with tempfile.TemporaryDirectory() as folder:
            names = Path(folder) / "list.txt"
            names.write_text(
                "".join(f"{path}\n" for path in write_locks(Path(folder) / "locks", count, given.packages))
            )
            output = Path(folder) / "checked.jsonl"
            command = [sys.executable, "-m", "compatcheck", "bulk", "--list", str(names), "--output", str(output)]
            done = run([*command, "--no-policy"])
            assert len(output.read_bytes().splitlines()) == count, done.output  # noqa: S101 (nothing is lost)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        seconds = done.cpu_seconds
        print(f"| {count} | {seconds:.1f} | {1000 * seconds / count:.0f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
