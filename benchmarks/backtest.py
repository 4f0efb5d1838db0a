"""Play the history of packages release by release, as `compatcheck watch` would have seen it on each day.

    python -m benchmarks.backtest --since 2025-01-01 --output FOLDER PACKAGE:ROWS:NAME=VALUE[,VALUE];… [PACKAGE:…]

The first release of each minor version (with ``--patches`` every release) is measured beside the packages of its day with so
many rows of the matrix of whole runs. What grew is measured again with all else held, after everything has been measured once.
``FOLDER`` gets a file a release, and ``grown.jsonl`` a line for each release in which something grew; what was measured before
is taken from the store.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.lab.evidence.files import write_measurements
from compatcheck.lab.parameters import parse_parameters
from compatcheck.lab.releases import choose_releases, group_minors
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.lab.watch import choose_pairs, choose_tasks, is_growth, look, write_look
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.release_series import SeriesChange


class Game:
    """One package with its tasks, and the releases that are played."""

    def __init__(self, spec: str, since: str, torch: str, *, patches: bool) -> None:
        """Read ``PACKAGE:ROWS:NAME=VALUE;…``."""
        self.package, rows, rest = spec.split(":")
        axes = parse_parameters([part for part in rest.split(";") if part])
        tasks, beside = choose_tasks(["whole_run"], self.package, "cpu", axes)
        self.tasks: list[Task] = tasks[: int(rows)]
        axis = choose_releases(open_rules(), self.package, None, ask=True)
        self.axis = axis if patches else axis._replace(names=tuple(minor[0] for minor in group_minors(axis.names)))
        self.pairs = choose_pairs(self.axis, None, since)
        settings = Settings(
            *(None, torch, beside, None, "release", "cpu", (), 300.0), no_store=False, fresh=False, quiet=True
        )
        self.laboratory: Laboratory = open_laboratory(settings, self.package, self.axis, progress=lambda *_: None)

    def measure(self, output: Path) -> None:
        """Measure each release, and write what its numbers are."""
        for version in dict.fromkeys(version for pair in self.pairs for version in pair):
            found = self.laboratory.measure(version, self.tasks)
            write_measurements(str(output / f"{self.package}-{version}.jsonl"), found)
            sys.stderr.write(f"{self.package} {version}: {[one.status for one in found]}\n")

    def attribute(self, output: Path) -> None:
        """Find out whose is what grew, the newest release first."""
        for before, after in reversed(self.pairs):
            found = look(self.laboratory, (before, after), self.tasks, self.axis.names[: self.axis.names.index(before)])
            if not any(is_growth(change) for change in found.changes):
                continue
            write_look(found, str(output), self.tasks, self.laboratory)
            line = {"package": self.package, "before": found.before, "after": after, "date": self.axis.dates.get(after)}
            with (output / "grown.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({**line, "changes": [_tell(one) for one in found.changes]}) + "\n")
            sys.stderr.write(f"{self.package} {found.before} -> {after}: {len(found.grown)} grew by its own doing\n")


def _tell(one: SeriesChange) -> dict[str, object]:
    parameters = one.series.parameters
    return {
        "run": {name: parameters[name] for name in ("trainer", "batch", "dtype", "precision", "checkpointing")},
        "metric": one.series.metric,
        "before": one.series.values[one.before],
        "after": one.series.values[one.after],
        "grew": is_growth(one),
        "cause": one.attribution and one.attribution.cause,
        "moved": list(one.attribution.moved) if one.attribution else [],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", default="2025-01-01")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--torch", default="2.13.0+cpu")
    parser.add_argument(
        "--patches", action="store_true", help="every release, not the first of each minor version alone"
    )
    parser.add_argument("packages", nargs="+")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    games = [Game(spec, given.since, given.torch, patches=given.patches) for spec in given.packages]
    for game in games:
        game.measure(given.output)
    for game in games:
        game.attribute(given.output)
