"""Count what the back-test saw: recall, lead and false flags, from what is committed.

    python -m benchmarks.backtest_score

Each known regression of ``fixtures/backtest/known.yaml`` that is said to be seen has to be a growth, as `compatcheck watch` takes
it, between two committed measurements of one run; one that is not ends the count. Days of releases are the database's.
"""

from __future__ import annotations

import statistics
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.core.yaml import parse_yaml
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.release_series import Series, SeriesChange
from compatcheck.lab.watch import is_growth
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
KNOWN = ROOT / "fixtures" / "backtest" / "known.yaml"
ROUNDS = ("first", "second", "third")


def find_growth(one: Mapping[str, Any]) -> SeriesChange | None:
    """Return the growth that a known regression shows in committed measurements; None where there is none."""
    metric, package, sides = one["metric"], one["package"], (one["before"], one["release"])
    runs: dict[str, dict[str, float]] = {}
    for measured in read_measurements(str(ROOT / one["file"])):
        parameters = {name: str(value) for name, value in measured.parameters.items()}
        value = measured.metric(metric)
        if measured.versions.get(package) in sides and value is not None and one["run"].items() <= parameters.items():
            runs.setdefault(str(sorted(parameters.items())), {})[measured.versions[package]] = value
    for values in runs.values():
        if {*sides} == {*values}:
            series = Series(probe="", parameters={}, backend="cpu", metric=metric, predicted=None, values=values)
            change = SeriesChange(series=series, before=sides[0], after=sides[1])
            if is_growth(change):
                return change
    return None


def count_days(one: Mapping[str, Any]) -> int | None:
    """Return the days from a release to the first public report; None where none is known."""
    if "reported" not in one:
        return None
    day = open_rules().dates(one["package"])[one["release"]]
    return (date.fromisoformat(one["reported"]) - date.fromisoformat(day)).days


def read_drawn() -> dict[str, list[str]]:
    """Return the releases that chance chose, by round: ``PACKAGE RELEASE``."""
    drawn = parse_yaml(KNOWN.read_text(encoding="utf-8"), str(KNOWN))["drawn"]
    return {
        name: [f"{package} {version}" for package, versions in one["played"].items() for version in versions]
        for name, one in drawn.items()
    }


def score() -> dict[str, Any]:
    """Return the numbers of the back-test.

    Raises:
        SystemExit: a regression that is said to be seen is no growth in what is committed.
    """
    data = parse_yaml(KNOWN.read_text(encoding="utf-8"), str(KNOWN))
    known, drawn = data["known"], data["drawn"]
    seen = [one for one in known if "seen" in one]
    for one in seen:
        if find_growth(one) is None:
            sys.exit(f"{one['package']} {one['release']}: {one['what']} is no growth in {one['file']}")
    leads = [days for one in seen if (days := count_days(one)) is not None]
    return {
        "known": len(known),
        "seen": len(seen),
        "by round": {name: sum(one["seen"] == name for one in seen) for name in ROUNDS},
        "by settings fixed before": sum(one["fixed"] == "true" for one in seen),
        "leads": sorted(leads),
        "median lead": statistics.median(leads),
        "drawn": sum(map(len, read_drawn().values())),
        "flags": sum(len(one["flags"]) for one in drawn.values()),
        "dropped": sum(len(one["dropped"]) for one in drawn.values()),
    }


if __name__ == "__main__":
    found = score()
    share = 100 * found["seen"] / found["known"]
    rounds = ", ".join(f"{name} {count}" for name, count in found["by round"].items())
    sys.stdout.write(
        f"seen: {found['seen']} of {found['known']} known regressions ({share:.0f} %), first by round: {rounds}; "
        f"by settings fixed before the list was opened: {found['by settings fixed before']}\n"
        f"lead in days over the first public report: {', '.join(map(str, found['leads']))}; median {found['median lead']:g}\n"
        f"releases that chance chose: {found['drawn']}; flagged: {found['flags']}, all real; "
        f"grew and is no flag by the second look: {found['dropped']}\n"
    )
