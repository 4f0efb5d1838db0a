"""The page of the back-test against what was measured."""

from __future__ import annotations

import re

from packaging.version import Version

from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.release_series import Series, SeriesChange
from compatcheck.lab.watch import is_growth
from tests import ROOT

PAGE = (ROOT / "docs" / "backtest.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+\.\d+\.\d+) \| (\d{4}-\d\d-\d\d) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
EVIDENCE = ROOT / "fixtures" / "measurements" / "whole_run" / "backtest-trl.jsonl"


def flags() -> dict[str, list[SeriesChange]]:
    """Return, by release, what grew in the committed measurements."""
    values: dict[tuple[str, int, str], dict[str, float]] = {}
    for one in read_measurements(str(EVIDENCE)):
        for metric in find_probe("whole_run").compared if one.succeeded else ():
            value = one.metric(metric)
            if value is not None:
                key = (one.parameters["trainer"], one.parameters["batch"], metric)
                values.setdefault(key, {})[one.versions["trl"]] = value
    found: dict[str, list[SeriesChange]] = {}
    for (trainer, batch, metric), measured in values.items():
        ordered = {version: measured[version] for version in sorted(measured, key=Version)}
        parameters = {"trainer": trainer, "batch": batch}
        series = Series(
            probe="whole_run", parameters=parameters, backend="cpu", metric=metric, predicted=None, values=ordered
        )
        for before, after in zip(ordered, list(ordered)[1:], strict=False):
            change = SeriesChange(series=series, before=before, after=after)
            if series.tells_apart(ordered[before], ordered[after]) and is_growth(change):
                found.setdefault(after, []).append(change)
    return found


def test_the_page_lists_every_release_in_which_something_grew() -> None:
    assert {release for release, *_ in ROW.findall(PAGE)} == {*flags()}


def test_every_number_on_the_page_was_measured() -> None:
    measured = {
        release: {
            tuple(f"{change.series.values[side] / 1e6:.2f}" for side in (change.before, change.after))
            for change in changes
        }
        for release, changes in flags().items()
    }
    seen = 0
    for release, _, _, grew in ROW.findall(PAGE):
        for pair in re.findall(r"(\d+\.\d\d) → (\d+\.\d\d) MB", grew):
            assert pair in measured[release], (release, pair)
            seen += 1
    assert seen > 15


def test_days_are_those_of_the_database() -> None:
    text = (ROOT / "rules" / "_releases" / "trl.yaml").read_text(encoding="utf-8")
    for release, day, *_ in ROW.findall(PAGE):
        assert f'"{release}": "{day}"' in text
