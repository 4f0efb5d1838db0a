"""Play the history of packages release by release, as `compatcheck watch` would have seen it on each day.

    python -m benchmarks.backtest --since 2025-01-01 --output FOLDER PACKAGE:NAME=VALUE[,VALUE];… [PACKAGE:…]

The first release of each minor version is measured beside the packages of its day and compared with the one before; what grew is
measured again with all else held. What comes out is a line of JSON a release in ``FOLDER/looks.jsonl``; a line that is there is
not played again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compatcheck.lab.parameters import parse_parameters
from compatcheck.lab.releases import choose_releases, group_minors
from compatcheck.lab.settings import Settings, open_laboratory
from compatcheck.lab.watch import Look, choose_pairs, choose_tasks, is_growth, look, write_look
from compatcheck.rules.locate import open_rules


def play(spec: str, since: str, output: Path, torch: str) -> None:
    """Play one package with the settings that follow its name."""
    package, _, rest = spec.partition(":")
    axes = parse_parameters([part for part in rest.split(";") if part])
    tasks, beside = choose_tasks(["whole_run"], package, "cpu", axes)
    axis = choose_releases(open_rules(), package, None, ask=True)
    axis = axis._replace(names=tuple(minor[0] for minor in group_minors(axis.names)))
    settings = Settings(None, torch, beside, None, "release", "cpu", (), 300.0, no_store=False, fresh=False, quiet=True)
    lines = output / "looks.jsonl"
    done = {tuple(json.loads(line)["key"]) for line in lines.read_text().splitlines()} if lines.exists() else set()
    for pair in choose_pairs(axis, None, since):
        key = (package, rest, *pair)
        if key in done:
            continue
        laboratory = open_laboratory(settings, package, axis, progress=lambda *_: None)
        found = look(laboratory, pair, tasks)
        write_look(found, str(output), tasks, laboratory)
        with lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "date": axis.dates.get(pair[1]), **_tell(found)}) + "\n")
        sys.stderr.write(f"{' '.join(key)}: {len(found.grown)} grew\n")


def _tell(found: Look) -> dict[str, object]:
    return {
        "tasks": sum(len(several) for several in found.results.values()),
        "compared": sum(len(one.values) > 1 for one in found.series),
        "failed": sorted({str(m.reason) for several in found.results.values() for m in several if not m.succeeded}),
        "changes": [
            {
                "trainer": one.series.parameters["trainer"],
                "batch": one.series.parameters["batch"],
                "dtype": one.series.parameters["dtype"],
                "metric": one.series.metric,
                "before": one.series.values[one.before],
                "after": one.series.values[one.after],
                "grew": is_growth(one),
                "cause": one.attribution and one.attribution.cause,
                "moved": list(one.attribution.moved) if one.attribution else [],
            }
            for one in found.changes
        ],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", default="2025-01-01")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--torch", default="2.13.0+cpu")
    parser.add_argument("packages", nargs="+")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    for one in given.packages:
        play(one, given.since, given.output, given.torch)
