"""Play the history of packages release by release, as `compatcheck watch` would have seen it on each day.

    python -m benchmarks.backtest --since 2025-01-01 --output FOLDER PACKAGE:ROWS:NAME=VALUE[,VALUE];… [PACKAGE:…]

The first release of each minor version (with ``--patches`` every release) is measured beside the packages of its day with so
many rows of the matrix of whole runs. What grew is measured again with all else held, after everything has been measured once.
``FOLDER`` gets a file a release, and ``grown.jsonl`` a line for each release in which something grew; what was measured before
is taken from the store.

    python -m benchmarks.backtest --matrix benchmarks/inputs/backtest2.txt --together 2 --output FOLDER PACKAGE:STRIDE …

plays runs of a file. Those that `compatcheck watch` takes are ``compatcheck/lab/probes/catalog/configured_run.txt``, where three
values are together. With a stride above 1 only each so many-th release is measured at first, and between two that differ what
differs is halved down to neighbours: a growth that was undone between two measured ones is not seen. With ``--draw N``
only N releases that chance chooses (``--seed``) are played, each with the one before. With ``--shuffle`` chance orders the
releases of all packages, those of ``--without FILE`` left out, and they are played one after the other, each to its end:

    python -m benchmarks.backtest --matrix compatcheck/lab/probes/catalog/configured_run.txt --shuffle --seed 6 \
        --without benchmarks/inputs/backtest-drawn.txt --every-release deepspeed --output FOLDER \
        accelerate:1 deepspeed:1 peft:1 transformers:1 trl:1
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.lab.evidence.files import write_measurements
from compatcheck.lab.matrix import read_rows
from compatcheck.lab.parameters import parse_parameters
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.releases import choose_releases, group_minors
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.lab.sweep import collect_series, find_changes
from compatcheck.lab.watch import choose_pairs, choose_tasks, is_growth, look, write_look
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.release_series import SeriesChange


class Game:
    """One package with its tasks, and the releases that are played."""

    def __init__(self, spec: str, given: argparse.Namespace) -> None:
        """Read ``PACKAGE:ROWS:NAME=VALUE;…``, or ``PACKAGE:STRIDE`` where a file has the matrix."""
        self.package, rest = spec.split(":", 1)
        self.stride = 1
        if given.matrix is None:
            rows, values = rest.split(":")
            axes = parse_parameters([part for part in values.split(";") if part])
            self.tasks, beside = choose_tasks(["whole_run"], self.package, "cpu", axes)
            self.tasks = self.tasks[: int(rows)]
        else:
            self.stride = int(rest)
            self.tasks = read_matrix(given.matrix, given.together, self.package)
            needed = (name for task in self.tasks for name in task.probe.needs(task.parameters))
            beside = tuple(name for name in dict.fromkeys(needed) if name != self.package)
        axis = choose_releases(open_rules(), self.package, None, ask=True)
        self.axis = (
            axis
            if given.patches or self.package in given.every_release
            else axis._replace(names=tuple(minor[0] for minor in group_minors(axis.names)))
        )
        self.pairs = choose_pairs(self.axis, None, given.since)
        if given.draw is not None:
            drawn = random.Random(given.seed).sample(range(len(self.pairs)), given.draw)  # noqa: S311 (no secret)
            self.pairs = [self.pairs[index] for index in sorted(drawn)]
        settings = Settings(
            *(None, given.torch, beside, None, "release", "cpu", (), 300.0),
            no_store=False,
            fresh=False,
            quiet=True,
            jobs=given.jobs,
        )
        self.laboratory: Laboratory = open_laboratory(settings, self.package, self.axis, progress=lambda *_: None)
        self.found: dict[str, dict[int, Measurement]] = {}
        """Release → the number of a task → what was measured."""

    def measure(self, output: Path) -> None:
        """Measure releases a stride apart, then between those that differ what differs; write what the numbers are."""
        names = list(dict.fromkeys(version for pair in self.pairs for version in pair))
        chosen = sorted({*range(0, len(names), self.stride), len(names) - 1})
        every = range(len(self.tasks))
        with ThreadPoolExecutor(self.laboratory.jobs) as pool:
            list(pool.map(lambda index: self._measure(names[index], every, output), chosen))
            chosen = [index for index in chosen if self._runs(names[index])]
            list(pool.map(lambda ends: self._narrow(names[ends[0] : ends[1] + 1], every, output), pairwise(chosen)))

    def _runs(self, version: str) -> bool:
        """Tell whether most runs can be measured: what was broken as a whole is no end to compare with."""
        found = self.found[version].values()
        return 2 * sum(one.succeeded for one in found) > len(found)

    def _narrow(self, names: Sequence[str], numbers: Iterable[int], output: Path) -> None:
        """Measure the middle of releases whose ends differ, in what they differ in, and go on in both halves."""
        differing = [number for number in numbers if len(names) > 2 and self._differ(names[0], names[-1], number)]
        if differing:
            middle = len(names) // 2
            self._measure(names[middle], differing, output)
            self._narrow(names[: middle + 1], differing, output)
            self._narrow(names[middle:], differing, output)

    def _differ(self, before: str, after: str, number: int) -> bool:
        """Tell whether a number that is compared differs by what a flag takes, up or down."""
        one, other = self.found[before].get(number), self.found[after].get(number)
        if one is None or other is None or not (one.succeeded and other.succeeded):
            return False
        return any(
            is_growth(change)
            for results in ({before: [one], after: [other]}, {before: [other], after: [one]})
            for change in find_changes(collect_series([self.tasks[number]], results, every_metric=False))
        )

    def _measure(self, version: str, numbers: Iterable[int], output: Path) -> None:
        numbers = list(numbers)
        found = self.laboratory.measure(version, [self.tasks[number] for number in numbers])
        self.found.setdefault(version, {}).update(zip(numbers, found, strict=True))
        write_measurements(str(output / f"{self.package}-{version}.jsonl"), list(self.found[version].values()))
        sys.stderr.write(f"{self.package} {version}: {Counter(one.status for one in found)}\n")

    def attribute(self, output: Path) -> None:
        """Find out whose is what grew, the newest release first."""
        for before, after in reversed(self.pairs):
            older = self.axis.names[: self.axis.names.index(before)]
            if self.stride > 1:
                numbers = [n for n in range(len(self.tasks)) if before in self.found and self._grew(before, after, n)]
                tasks, older = [self.tasks[number] for number in numbers], ()
            else:
                tasks = self.tasks
            if not tasks:
                continue
            self.play((before, after), tasks, older, output)

    def play(self, pair: tuple[str, str], tasks: Sequence[Task], older: Sequence[str], output: Path) -> None:
        """Look at a release beside the one before, and write what grew."""
        after = pair[1]
        found = look(self.laboratory, pair, tasks, older)
        count = Counter(one.status for several in found.results.values() for one in several)
        sys.stderr.write(
            f"{self.package} {found.before} -> {after}: {dict(count)}, {len(found.grown)} grew by its own doing, "
            f"{len(found.dropped)} in that run alone, {len(found.doubtful)} not told\n"
        )
        if not any(is_growth(change) for change in found.changes):
            return
        write_look(found, str(output), tasks, self.laboratory)
        line = {"package": self.package, "before": found.before, "after": after, "date": self.axis.dates.get(after)}
        with (output / "grown.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "changes": [_tell(one) for one in found.changes]}) + "\n")

    def _grew(self, before: str, after: str, number: int) -> bool:
        return after in self.found and self._differ(before, after, number)


def shuffle(games: Sequence[Game], without: frozenset[str], seed: int) -> list[tuple[Game, tuple[str, str]]]:
    """Return the releases of all packages in an order that chance chooses, but those that a file names."""
    left = [(game, pair) for game in games for pair in game.pairs if f"{game.package} {pair[1]}" not in without]
    return random.Random(seed).sample(left, len(left))  # noqa: S311 (no secret)


def read_matrix(path: Path, together: int, package: str) -> list[Task]:
    """Return the runs of a package that a file of lines has (`compatcheck.lab.matrix`)."""
    rows = read_rows(path.read_text(encoding="utf-8"), package, together=together)
    return [make_task(find_probe("configured_run"), row, "cpu") for row in rows]


def _tell(one: SeriesChange) -> dict[str, object]:
    parameters = one.series.parameters
    defaults = find_probe(one.series.probe).module.DEFAULTS
    return {
        "run": {name: value for name, value in parameters.items() if name == "trainer" or value != defaults[name]},
        "metric": one.series.metric,
        "before": one.series.values[one.before],
        "after": one.series.values[one.after],
        "grew": is_growth(one),
        "cause": one.attribution and one.attribution.cause,
        "moved": list(one.attribution.moved) if one.attribution else [],
        "lasts": None if one.recheck is None else one.recheck.holds,
        "share": None if one.recheck is None else one.recheck.share,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", default="2025-01-01")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--torch", default="2.13.0+cpu")
    parser.add_argument(
        "--patches", action="store_true", help="every release, not the first of each minor version alone"
    )
    parser.add_argument("--matrix", type=Path, help="a file of runs; packages are then PACKAGE:STRIDE")
    parser.add_argument(
        "--together", type=int, default=3, help="values of a line that occur together; 2 in the second round"
    )
    parser.add_argument("--draw", type=int, help="how many releases chance chooses; every one without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shuffle", action="store_true", help="the releases of all packages in an order of chance")
    parser.add_argument("--without", type=Path, help="a file of `PACKAGE RELEASE` that are left out of it")
    parser.add_argument("--every-release", nargs="*", default=[], metavar="PACKAGE")
    parser.add_argument("--jobs", type=int, default=1, help="releases measured at a time")
    parser.add_argument("packages", nargs="+")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    games = [Game(spec, given) for spec in given.packages]
    if given.shuffle:
        known = frozenset(given.without.read_text(encoding="utf-8").splitlines()) if given.without else frozenset()
        for game, pair in shuffle(games, known, given.seed):
            game.play(pair, game.tasks, game.axis.names[: game.axis.names.index(pair[0])], given.output)
        sys.exit()
    for game in games:
        game.measure(given.output)
    for game in games:
        game.attribute(given.output)
