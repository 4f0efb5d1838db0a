"""Double an input by a filler at a random token and measure how the cost of reading it grows.

    python -m benchmarks.fuzz.growth requirements          # a parser of `fuzz.py`
    python -m benchmarks.fuzz.growth all --places 3        # every parser
    python -m benchmarks.fuzz.growth all --command check   # what a command does with the file of every parser
    python -m benchmarks.fuzz.growth yaml --filler 17      # one filler alone

Cost is CPU time, without that of the seed itself. An input of 120 kB that costs less than 50 ms is let pass; of the others the
exponent is taken over two doublings, and again from the smallest of five runs over two larger ones where it is above the limit.
Exit code 1 where one is above it for good.
"""

from __future__ import annotations

import argparse
import ast
import gc
import math
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.fuzz.campaign import Case, Outcome, Runner, load_parser
from benchmarks.fuzz.fuzz import TARGETS, find_seeds, read_seed
from benchmarks.fuzz.mutation import insert_at_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 1.2
BYTES = 120_000
_SECONDS = 0.05
_MOST_SEED_BYTES = 8000
_OF_FILE = frozenset({"environment_variables", "measurements", "measurement_lines", "metadata", "policy", "rule"})
"""Parsers whose file is not for a command that reads files."""

FILLERS: tuple[str, ...] = tuple(
    map(ast.literal_eval, Path(__file__).with_name("fillers.txt").read_text().splitlines())
)
"""What is repeated; ``%d`` is a number that goes up."""


class Series(NamedTuple):
    """One filler at one place of one seed."""

    name: str
    filler: int
    place: int

    def make(self, size: int) -> bytes:
        """Return the input of so many bytes."""
        choose = random.Random(f"{self.name}-{self.filler}-{self.place}")  # noqa: S311 (no secret)
        seeds = [read_seed(path) for path in find_seeds(self.name)]
        seed = choose.choice([data for data in seeds if len(data) <= _MOST_SEED_BYTES] or [seeds[0][:_MOST_SEED_BYTES]])
        return insert_at_token(seed, _repeat(FILLERS[self.filler], size), choose)


def _repeat(filler: str, size: int) -> bytes:
    if "%d" not in filler:
        part = filler.encode()
        return part * (size // len(part))
    out, length, number = [], 0, 0
    while length < size:
        out.append(filler.replace("%d", str(number)).encode())
        length, number = length + len(out[-1]), number + 1
    return b"".join(out)


def measure(series: Series, run: Callable[[Case], Outcome], file: str) -> tuple[float, float]:
    """Return what the largest input costs, in seconds of CPU, and the exponent; 0 where it costs too little to tell."""

    def cost(size: int, times: int) -> float:
        data = series.make(size)
        least = math.inf
        for _ in range(times):
            gc.collect()
            least = min(least, run(Case({file: data})).seconds)
        return least

    base = cost(0, 1)
    largest = cost(BYTES, 1) - base
    if largest < _SECONDS:
        return largest, 0
    largest = min(largest, cost(BYTES, 2) - base)
    exponent = math.log2(max(0.001, largest) / max(0.001, cost(BYTES // 4, 3) - base)) / 2
    if exponent > LIMIT:
        twice = cost(2 * BYTES, 5) - base
        exponent = math.log2(max(0.001, twice) / max(0.001, cost(BYTES // 2, 5) - base)) / 2
    return largest, exponent


def search(names: list[str], places: int, fillers: list[int], command: str | None) -> int:
    """Measure every series, print those above the limit and a line about each parser, and return how many are above."""
    above = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        runner = Runner(Path(temporary))
        for name in names:
            file = TARGETS[name].name
            run = _runs(runner, name, command)
            worst, dearest, measured = 0.0, 0.0, 0
            for series in _series(name, places, fillers):
                cost, exponent = measure(series, run, file)
                measured += 1
                worst, dearest = max(worst, exponent), max(dearest, cost)
                if exponent > LIMIT:
                    above += 1
                    print(
                        f"{name}: filler {series.filler} {FILLERS[series.filler]!r} at place {series.place}: "
                        f"{cost:.2f} s for {BYTES // 1000} kB, exponent {exponent:.2f}",
                        flush=True,
                    )
            print(f"{name}: {measured} series, dearest {dearest:.2f} s, largest exponent {worst:.2f}", flush=True)
    return above


def _runs(runner: Runner, name: str, command: str | None) -> Callable[[Case], Outcome]:
    if command is None:
        parse = load_parser(name)
        return lambda case: runner.run_parser(name, parse, case)
    return lambda case: runner.run_command(case._replace(arguments=(command, TARGETS[name].name)))


def _series(name: str, places: int, fillers: list[int]) -> Iterator[Series]:
    for filler in fillers:
        for place in range(places):
            yield Series(name, filler, place)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*TARGETS, "all"], metavar="TARGET")
    parser.add_argument("--places", type=int, default=1, help="places tried for each filler")
    parser.add_argument("--filler", type=int, choices=range(len(FILLERS)), metavar="N", help="one filler alone")
    parser.add_argument("--command", help="command that is given the file, instead of the parser alone")
    options = parser.parse_args()
    names = [options.target] if options.target != "all" else list(TARGETS)
    if options.command is not None:
        names = [name for name in names if name not in _OF_FILE and not TARGETS[name].takes_bytes]
    fillers = list(range(len(FILLERS))) if options.filler is None else [options.filler]
    sys.exit(search(names, options.places, fillers, options.command) > 0)


if __name__ == "__main__":
    main()
