"""Count what the back-test saw: recall, lead and false flags, from what is committed.

    python -m benchmarks.backtest_score

Each known regression of ``fixtures/backtest/known.yaml`` and ``held-out.yaml`` that is said to be seen has to be a growth, as
`compatcheck watch` takes it, between two committed measurements of one run; one that is not ends the count. Days of releases are
the database's.
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
HELD_OUT = KNOWN.with_name("held-out.yaml")
ROUNDS = ("first", "second", "third")
LISTED = 21
"""Regressions between releases of the five packages in the first list, two of them older than what was played."""


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


def read_held_out() -> list[dict[str, Any]]:
    """Return the regressions of the second list that the first has not, and that no page had led to."""
    gathered = parse_yaml(HELD_OUT.read_text(encoding="utf-8"), str(HELD_OUT))["worse"]
    return [one for one in gathered if one["listed"] == "false" and "sight" not in one]


def score_held_out() -> dict[str, Any]:
    """Return how much of the second list the first has, and how much of what it has not was seen.

    What both lists have tells how many there are (Chapman's estimate, two samples of which neither knew of the other).

    Raises:
        SystemExit: as of `score`; or nothing says why one was not seen.
    """
    gathered = parse_yaml(HELD_OUT.read_text(encoding="utf-8"), str(HELD_OUT))["worse"]
    held = read_held_out()
    for one in held:
        if "seen" in one:
            check_growth(one)
        elif "why" not in one:
            sys.exit(f"{one['package']} {one['release']}: {one['what']}: nothing says why it was not seen")
    blind = [one for one in gathered if "sight" not in one and one["package"] != "torch"]
    both = sum(one["listed"] == "true" for one in blind)
    return {
        "gathered": len(gathered),
        "listed": sum(one["listed"] == "true" for one in gathered),
        "held out": len(held),
        "without a GPU": sum(one.get("needs") != "gpu" for one in held),
        "seen": sum(one.get("seen") == "fixed" for one in held),
        "seen after": sum("seen" in one for one in held),
        "leads": sorted(days for one in held if one.get("seen") == "fixed" and (days := count_days(one)) is not None),
        "estimate": (LISTED + 1) * (len(blind) + 1) / (both + 1) - 1,
    }


def check_growth(one: Mapping[str, Any]) -> None:
    """End the count where a regression that is said to be seen is no growth.

    Raises:
        SystemExit: it is none.
    """
    if find_growth(one) is None:
        sys.exit(f"{one['package']} {one['release']}: {one['what']} is no growth in {one['file']}")


def score() -> dict[str, Any]:
    """Return the numbers of the back-test.

    Raises:
        SystemExit: a regression that is said to be seen is no growth in what is committed.
    """
    data = parse_yaml(KNOWN.read_text(encoding="utf-8"), str(KNOWN))
    known, drawn = data["known"], data["drawn"]
    seen = [one for one in known if "seen" in one]
    for one in seen:
        check_growth(one)
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
    held = score_held_out()
    sys.stdout.write(
        f"gathered anew: {held['gathered']}, of which {held['listed']} were known; held out: {held['held out']}, "
        f"seen by the committed settings: {held['seen']} ({100 * held['seen'] / held['held out']:.0f} %; without a GPU "
        f"{held['seen']} of {held['without a GPU']}; lead in days: {', '.join(map(str, held['leads']))}), "
        f"with what was added for the misses: {held['seen after']}; "
        f"both lists let {held['estimate']:.0f} be expected in the five packages\n"
    )
