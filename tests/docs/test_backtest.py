"""The page of the back-test against what was measured."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from packaging.version import Version

from benchmarks.backtest_score import count_days, read_held_out, score, score_held_out
from compatcheck.core.yaml import parse_yaml
from compatcheck.lab.matrix import choose_rows
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.release_series import Series, SeriesChange
from compatcheck.lab.watch import is_growth
from tests import ROOT

PAGE = (ROOT / "docs" / "backtest.md").read_text(encoding="utf-8")
FIRST, _, LATER = PAGE.partition("## The second round")
ROW = re.compile(r"^\| (\w+) (\d+\.\d+\.\d+) \| (\d{4}-\d\d-\d\d) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
EVIDENCE = ROOT / "fixtures" / "measurements" / "whole_run"
PACKAGES = ("trl", "transformers", "peft", "accelerate", "deepspeed")
SETTINGS = ("trainer", "batch", "dtype", "precision", "checkpointing", "adapter", "model_type")


def read_counted(name: str) -> list[dict[str, Any]]:
    """Return the known regressions of a list that a committed measurement shows."""
    path = ROOT / "fixtures" / "backtest" / f"{name}.yaml"
    data = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    return [one for one in data.get("known", data.get("worse")) if "seen" in one]


def flags(package: str) -> dict[str, list[SeriesChange]]:
    """Return, by release, what grew in the committed measurements of a package."""
    values: dict[tuple[str, ...], dict[str, float]] = {}
    for one in read_measurements(str(EVIDENCE / f"backtest-{package}.jsonl")):
        for metric in find_probe("whole_run").compared if one.succeeded else ():
            value = one.metric(metric)
            if value is not None:
                key = (metric, *(str(one.parameters[name]) for name in SETTINGS))
                values.setdefault(key, {})[one.versions[package]] = value
    found: dict[str, list[SeriesChange]] = {}
    for (metric, *settings), measured in values.items():
        ordered = {version: measured[version] for version in sorted(measured, key=Version)}
        parameters = dict(zip(SETTINGS, settings, strict=True))
        series = Series(
            probe="whole_run", parameters=parameters, backend="cpu", metric=metric, predicted=None, values=ordered
        )
        for before, after in zip(ordered, list(ordered)[1:], strict=False):
            change = SeriesChange(series=series, before=before, after=after)
            if series.tells_apart(ordered[before], ordered[after]) and is_growth(change):
                found.setdefault(after, []).append(change)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_every_release_in_which_something_grew(package: str) -> None:
    assert {release for named, release, *_ in ROW.findall(FIRST) if named == package} == {*flags(package)}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_number_on_the_page_was_measured(package: str) -> None:
    measured = {
        release: {
            tuple(f"{change.series.values[side] / 1e6:.2f}" for side in (change.before, change.after))
            for change in changes
        }
        for release, changes in flags(package).items()
    }
    seen = 0
    for _, release, _, _, grew in (row for row in ROW.findall(FIRST) if row[0] == package):
        for pair in re.findall(r"(\d+\.\d\d) → (\d+\.\d\d) MB", grew):
            assert pair in measured[release], (release, pair)
            seen += 1
    assert seen >= len(measured)


def test_what_is_called_held_was_measured_beside_the_packages_of_the_other_side() -> None:
    held = {
        (name, one.versions.get(name)) for one in read_measurements(str(EVIDENCE / "held.jsonl")) for name in PACKAGES
    }
    rows = [line for line in FIRST.splitlines() if ROW.match(line) and "held" in line]
    assert len(rows) > 20
    for package, release, *_ in (row for line in rows for row in ROW.findall(line)):
        assert (package, release) in held


def test_what_is_counted_is_in_the_table() -> None:
    rows = [line for line in FIRST.splitlines() if ROW.match(line)]
    counts = [sum(mark in row for row in rows) for mark in ("**known**", "**false**", "no flag |")]
    assert counts == [5, 5, 7]
    assert len(rows) - sum(counts) == 10


def test_days_are_those_of_the_database() -> None:
    for package, release, day, *_ in ROW.findall(PAGE):
        text = (ROOT / "rules" / "_releases" / f"{package}.yaml").read_text(encoding="utf-8")
        assert f'"{release}": "{day}"' in text


def test_every_number_of_the_second_round_was_measured() -> None:
    values = {
        f"{value / 1e6:.2f}"
        for one in read_measurements(str(ROOT / "fixtures" / "backtest" / "second-round" / "trl.jsonl"))
        for metric in find_probe("configured_run").compared
        if (value := one.metric(metric)) is not None
    }
    table = PAGE.partition("Of the 19, on the day of the release:")[2].partition("The last was measured")[0]
    numbers = re.findall(r"(\d+\.\d\d) → (\d+\.\d\d) MB", table)
    assert len(numbers) == 10
    assert {one for pair in numbers for one in pair} <= values


def test_every_number_of_the_third_round_was_measured_on_both_sides_in_one_run() -> None:
    probe = find_probe("configured_run")
    values: dict[tuple[str, ...], set[str]] = {}
    for package in PACKAGES:
        for one in read_measurements(str(ROOT / "fixtures" / "measurements" / "configured_run" / f"{package}.jsonl")):
            assert one.probe_hash == probe.hash_for(one.parameters)
            assert dict(one.parameters) in [probe.complete(row) for row in choose_rows(probe, package, {})]
            for metric in probe.compared:
                if (value := one.metric(metric)) is not None:
                    key = (package, metric, *map(str, one.parameters.values()))
                    values.setdefault(key, set()).add(f"{value / 1e6:.2f}")
    table = PAGE.partition("Played on both sides of each such regression")[2].partition("Together with the seven")[0]
    pairs = re.findall(r"(\d+\.\d\d) → (\d+\.\d\d) MB", table)
    assert len(pairs) >= 10
    for pair in pairs:
        assert any({*pair} <= found for found in values.values()), pair


@pytest.mark.parametrize(
    ("title", "counts"),
    [
        ("fourth", {"deepspeed": 4}),
        ("fifth", {"trl": 2, "transformers": 1, "peft": 2, "deepspeed": 3}),
    ],
)
def test_the_numbers_of_drawn_releases_are_both_sides_of_one_run(title: str, counts: dict[str, int]) -> None:
    section = LATER.partition(f"## The {title} round")[2].partition("\n## ")[0]
    for package, count in counts.items():
        values: dict[str, dict[tuple[str, ...], dict[str, str]]] = {}
        for one in read_measurements(str(ROOT / "fixtures" / "backtest" / f"{title}-round" / f"{package}.jsonl")):
            parameters = tuple(sorted(map(str, one.parameters.items())))
            for metric in find_probe("configured_run").compared:
                if (value := one.metric(metric)) is not None:
                    run = values.setdefault(metric, {}).setdefault(parameters, {})
                    run[one.versions[package]] = f"{value / 1e6:.2f}"
        pairs = {
            (after, run[before], run[after])
            for runs in values.values()
            for run in runs.values()
            for before, after in pairwise(sorted(run, key=Version))
        }
        rows = [row for row in ROW.findall(section) if row[0] == package]
        for _, release, _, _, grew in rows:
            found = re.findall(r"(\d+\.\d\d) → (\d+\.\d\d) MB", grew)
            assert found
            assert {(release, *pair) for pair in found} <= pairs, release
        assert len(rows) == count


def test_the_numbers_of_the_second_look_are_both_sides_of_one_run() -> None:
    section = LATER.partition("## The sixth round")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) (\d+\.\d+\.\d+) \| (.+) \|$", section, re.MULTILINE)
    seen = 0
    for package, release, cells in rows:
        found = re.findall(r"(\d+\.\d\d) → (\d+\.\d\d) MB", cells)
        runs: dict[tuple[str, ...], dict[str, set[str]]] = {}
        measured = ROOT / "fixtures" / "backtest" / "sixth-round" / f"{package}.jsonl"
        for one in read_measurements(str(measured)) if found else ():
            assert one.probe_hash == find_probe("configured_run").hash_for(one.parameters)
            for metric in find_probe("configured_run").compared:
                if (value := one.metric(metric)) is not None and Version(one.versions[package]) <= Version(release):
                    run = runs.setdefault((metric, *sorted(map(str, one.parameters.items()))), {})
                    run.setdefault(one.versions[package], set()).add(f"{value / 1e6:.2f}")
        for before, after in found:
            assert any(
                before in run[earlier] and after in run[release]
                for run in runs.values()
                for earlier, last in pairwise(sorted(run, key=Version))
                if last == release
            ), (release, before, after)
            seen += 1
    assert seen >= 15


def test_the_three_numbers_are_those_of_the_count() -> None:
    known, held = score(), score_held_out()
    head = PAGE.partition("\n## ")[0]
    for seen, count in (
        (known["seen"], known["known"]),
        (known["by settings fixed before"], known["known"]),
        (held["seen"], held["held out"]),
    ):
        assert f"| {seen} of {count} ({100 * seen / count:.0f} %)" in head
    assert f"{held['seen']} of the {held['without a GPU']} that need no GPU" in head


def test_what_is_counted_was_measured_with_the_probes_of_today() -> None:
    counted = [one for name in ("known", "held-out") for one in read_counted(name)]
    assert len(counted) >= 15
    for one in counted:
        for measured in read_measurements(str(ROOT / one["file"])):
            assert measured.probe_hash == find_probe(measured.probe).hash_for(measured.parameters), one["what"]


def test_the_second_list_is_counted_and_every_miss_explained() -> None:
    section = LATER.partition("## A second list")[2].partition("\n## ")[0]
    held = score_held_out()
    assert f"release to the next | {held['gathered']} |" in section
    assert f"first list, too | {held['listed']} |" in section
    assert f"[{held['estimate']:.0f} be expected]" in section
    assert f"It is {held['seen after']} of {held['held out']} (" in section
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in section.splitlines() if line.startswith("| ")}
    for one in read_held_out():
        row = rows[f"{one['what']} ({one['package']} {one['release']})"]
        assert ("**yes**" in row) == (one.get("seen") == "fixed")
        if "days later" in row:
            assert f"[{count_days(one)} days later]({one['report']})" in row


def test_the_numbers_of_the_second_list_are_both_sides_of_one_run() -> None:
    section = LATER.partition("## A second list")[2].partition("\n## ")[0]
    values: dict[tuple[str, ...], set[str]] = {}
    for name in ("trl", "transformers"):
        for one in read_measurements(str(ROOT / "fixtures" / "backtest" / "held-out" / f"{name}.jsonl")):
            assert one.probe_hash == find_probe("configured_run").hash_for(one.parameters)
            for metric in find_probe("configured_run").compared:
                if (value := one.metric(metric)) is not None:
                    key = (metric, *sorted(map(str, one.parameters.items())))
                    values.setdefault(key, set()).add(f"{value / 1e6:.2f}")
    pairs = re.findall(r"(\d+\.\d\d) (?:→|and) (\d+\.\d\d) MB", section)
    assert len(pairs) >= 5
    for pair in pairs:
        assert any({*pair} <= found for found in values.values()), pair
