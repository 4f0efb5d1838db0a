"""Double an input by a filler at a random token and measure how the cost of reading it grows.

    python -m benchmarks.fuzz.growth requirements          # a parser of `fuzz.py`
    python -m benchmarks.fuzz.growth check                 # a command of `commands.py`: one file of one of its inputs is doubled
    python -m benchmarks.fuzz.growth parsers --places 3    # every parser
    python -m benchmarks.fuzz.growth commands --every 5    # every command, one filler in five
    python -m benchmarks.fuzz.growth yaml --filler 17      # one filler alone

Cost is CPU time, without that of the seed itself, and with what the package keeps between calls forgotten. An input of 120 kB
that costs less than 50 ms is let pass; of the others the exponent is taken over two doublings, and again from the smallest of
five runs over two larger ones where it is above the limit. Exit code 1 where one is above it for good. The row of a name: series,
those that cost enough to tell, seconds of the dearest, largest exponent.
"""

from __future__ import annotations

import argparse
import ast
import gc
import math
import random
import sys
import tempfile
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.fuzz.campaign import Case, Outcome, Runner, make_steps
from benchmarks.fuzz.commands import COMMANDS, Seed, pack_image
from benchmarks.fuzz.fuzz import TARGETS, find_seeds, read_seed
from benchmarks.fuzz.mutation import insert_at_token

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1.2
BYTES = 120_000
_SECONDS = 0.05
_MOST_SEED_BYTES = 8000

FILLERS: tuple[str, ...] = tuple(
    map(ast.literal_eval, Path(__file__).with_name("fillers.txt").read_text().splitlines())
)
"""What is repeated; ``%d`` is a number that goes up."""


class Series(NamedTuple):
    """One filler at one place of one seed."""

    name: str
    """Of a parser or a command."""
    filler: int
    place: int

    def make(self, size: int) -> Case:
        """Return the input with so many bytes of the filler."""
        choose = random.Random(f"{self.name}-{self.filler}-{self.place}")  # noqa: S311 (no secret)
        seed = choose.choice(_list_seeds(self.name))
        files = dict(seed.files)
        name = choose.choice(list(files))
        files[name] = insert_at_token(files[name], _repeat(FILLERS[self.filler], size), choose)
        if seed.archive is not None:
            files = pack_image(files, seed.archive)
        return Case(files, (*seed.arguments, *seed.choices[0]))


@cache
def _list_seeds(name: str) -> list[Seed]:
    if name in COMMANDS:
        return COMMANDS[name]()
    seeds = [read_seed(path) for path in find_seeds(name)]
    small = [data for data in seeds if len(data) <= _MOST_SEED_BYTES] or [seeds[0][:_MOST_SEED_BYTES]]
    return [Seed((), {TARGETS[name].name: data}) for data in small]


def _repeat(filler: str, size: int) -> bytes:
    if "%d" not in filler:
        part = filler.encode()
        return part * (size // len(part))
    out, length, number = [], 0, 0
    while length < size:
        out.append(filler.replace("%d", str(number)).encode())
        length, number = length + len(out[-1]), number + 1
    return b"".join(out)


def measure(series: Series, run: Callable[[Case], Outcome]) -> tuple[float, float]:
    """Return what the largest input costs, in seconds of CPU, and the exponent; 0 where it costs too little to tell."""

    def cost(size: int, times: int) -> float:
        case = series.make(size)
        least = math.inf
        for _ in range(times):
            _forget()
            outcome = run(case)
            if outcome.found is not None:  # it was stopped, so its time says nothing
                return math.inf
            least = min(least, outcome.seconds)
        return least

    base = cost(0, 2)
    largest = cost(BYTES, 1) - base
    if largest >= _SECONDS:
        largest = min(largest, cost(BYTES, 2) - base)
    if largest < _SECONDS or math.isinf(largest):
        return largest, 0 if largest < _SECONDS else largest
    exponent = math.log2(largest / max(0.001, cost(BYTES // 4, 3) - base)) / 2
    if exponent > LIMIT:
        twice = cost(2 * BYTES, 5) - base
        exponent = math.log2(max(0.001, twice) / max(0.001, cost(BYTES // 2, 5) - base)) / 2
    return largest, exponent


def _forget() -> None:
    """Begin as a process of its own does: nothing that the package has looked up is known."""
    for kept in gc.get_objects():
        if isinstance(kept, _lru_cache_wrapper) and str(kept.__module__).startswith("compatcheck."):
            kept.cache_clear()
    gc.collect()


def search(names: list[str], places: int, fillers: list[int]) -> int:
    """Measure every series, print those above the limit and a row about each name, and return how many are above."""
    above = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        runner = Runner(Path(temporary))
        for name in names:
            run = make_steps(runner, name)[1]
            worst, dearest, measured, told = 0.0, 0.0, 0, 0
            for series in (Series(name, filler, place) for filler in fillers for place in range(places)):
                cost, exponent = measure(series, run)
                measured += 1
                told += exponent > 0
                worst, dearest = max(worst, exponent), max(dearest, cost)
                if exponent > LIMIT:
                    above += 1
                    print(
                        f"{name}: filler {series.filler} {FILLERS[series.filler]!r} at place {series.place}: "
                        f"{cost:.2f} s for {BYTES // 1000} kB, exponent {exponent:.2f}",
                        flush=True,
                    )
            print(f"| {name} | {measured} | {told} | {dearest:.2f} | {worst:.2f} |", flush=True)
    return above


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*TARGETS, *COMMANDS, "parsers", "commands"], metavar="TARGET")
    parser.add_argument("--places", type=int, default=1, help="places tried for each filler")
    parser.add_argument("--filler", type=int, choices=range(len(FILLERS)), metavar="N", help="one filler alone")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one filler in N")
    options = parser.parse_args()
    names = {"parsers": list(TARGETS), "commands": list(COMMANDS)}.get(options.target, [options.target])
    fillers = list(range(0, len(FILLERS), options.every)) if options.filler is None else [options.filler]
    sys.exit(search(names, options.places, fillers) > 0)


if __name__ == "__main__":
    main()
