"""Measure what `compatcheck fleet merge` costs on the dumps of many nodes: CPU seconds by number of nodes.

Nodes are drawn: 160 distributions, devices, variables; of a hundred, one has another NCCL, and one another driver and variable.

    python benchmarks/many_nodes.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from cpu import run

from compatcheck.core.node import write_line

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.unit.fleet.drawn_nodes import HARDWARE, draw

ROUNDS = 5


def write_dumps(folder: Path, count: int) -> None:
    """Write the dumps of so many nodes."""
    packages: dict[str, str | None] = {f"package-{number}": f"1.{number}.0" for number in range(155)}
    for number in range(count):
        releases = {**packages, "nvidia-nccl-cu12": "2.20.5" if number % 100 == 7 else "2.21.5"}
        odd = number % 100 == 42
        hardware = HARDWARE._replace(driver="535.104.05") if odd else HARDWARE
        node = draw(f"node{number:04}", releases, {"NCCL_ALGO": "Ring"} if odd else {}, hardware)
        (folder / f"{node.name}.json").write_text(write_line(node))


def main() -> None:
    """Write a table."""
    print("| nodes | CPU seconds, min | median |\n|---:|---:|---:|")
    for count in (1, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            write_dumps(Path(folder), count)
            command = [sys.executable, "-m", "compatcheck", "fleet", "merge", folder, "--no-policy"]
            seconds = sorted(run(command).cpu_seconds for _ in range(ROUNDS))
        print(f"| {count} | {seconds[0]:.2f} | {seconds[ROUNDS // 2]:.2f} |")


if __name__ == "__main__":
    main()
