"""Keep the measured cells of all experiments as evidence: `python -m tests.rules.keep_cells FILE...`.

The files are those of `compatcheck evidence export`, after `compatcheck confirm RULE... --cells all`. What other evidence has is
left out, as are operators and phases that no cell needs. Measurements under the same releases share a header.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.lab.evidence.files import measurement_files, write_measurements
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import RuleSet
from tests import ROOT
from tests.rules.test_experiments import MEASUREMENTS, NAME, all_experiments, all_sides, side_keys

if TYPE_CHECKING:
    from compatcheck.lab.measurement import Measurement


def main(paths: list[str]) -> None:
    """Write the cells of each probe that are in these files, or were kept before."""
    rules = RuleSet((open_compiled(compile_directory(ROOT / "rules"), "rules"),))
    wanted = all_sides(all_experiments(rules))
    given = [path for argument in paths for path in measurement_files(argument)]
    kept: dict[str, dict[str, Measurement]] = {}
    for path in [*map(str, MEASUREMENTS.glob(f"*/{NAME}")), *given]:
        for measurement in read_measurements(path):
            for key in side_keys(measurement) & wanted:
                kept.setdefault(measurement.probe, {})[key] = _strip(measurement)
    for probe, cells in kept.items():
        others = {
            key
            for path in (MEASUREMENTS / probe).glob("*.json*")
            if path.name != NAME
            for measurement in read_measurements(str(path))
            for key in side_keys(measurement)
        }
        own = [cell for key, cell in cells.items() if key not in others]
        if own:
            _write(MEASUREMENTS / probe / NAME, own)


def _strip(measurement: Measurement) -> Measurement:
    phases = tuple(replace(phase, peak_operator=None) for phase in measurement.phases)
    return replace(measurement, phases=() if measurement.probe != "training_step" else phases)


def _write(path: Path, cells: list[Measurement]) -> None:
    ordered = sorted(cells, key=lambda cell: sorted(cell.versions.items()))
    parts = []
    for _, group in groupby(ordered, key=lambda cell: sorted(cell.versions.items())):
        write_measurements(str(path), group)
        parts.append(path.read_text(encoding="utf-8"))
    path.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
