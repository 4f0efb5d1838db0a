"""Constraints, uv settings and Renovate rules leave out exactly the releases that rules are about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from compatcheck.core.errors import UsageError
from compatcheck.core.toml import parse_toml
from compatcheck.core.versions import all_ordered, parse_version
from compatcheck.rules.database import RuleSet
from compatcheck.rules.exclusion import Excluded, exclude, format_constraints, format_renovate, format_uv
from compatcheck.rules.locate import open_rules
from compatcheck.rules.osv import Record, describe_rules

MIDDLE = "deepspeed/zero3-params-kept-in-backward"
"""A range between two good ones."""


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


@pytest.fixture(scope="module")
def records(rules) -> dict[str, Record]:
    return {record.rule_id: record for record in describe_rules(rules, lambda _: True).records}


def bounds_of(record: Record, package: str) -> list:
    return [clauses for entry in record.affected if entry.package == package for clauses in entry.bounds]


def test_every_rule_leaves_out_its_known_releases_and_no_others(rules, records) -> None:
    checked = excluded_rules = 0
    for record in records.values():
        try:
            excluded = exclude([record], rules)
        except UsageError:
            continue  # no release is good: tested below
        for exclusion in excluded.exclusions:
            bounds = bounds_of(record, exclusion.package)
            specifier = SpecifierSet(exclusion.specifier)
            excluded_rules += 1
            for release in rules.releases(exclusion.package):
                version = parse_version(release)
                assert version is not None
                bad = all_ordered(bounds, version)
                allowed = specifier.contains(version, prereleases=True)
                # PEP 440: "<2.0" leaves out 2.0rc1, which lies between the good and the bad.
                if bad or not version.is_prerelease:
                    assert allowed is not bad, (record.rule_id, release, exclusion.specifier)
                checked += 1
    assert excluded_rules > 80
    assert checked > 8000


def test_several_rules_are_joined(rules, records) -> None:
    names = [MIDDLE, "deepspeed/offload-fp32-copy-in-step", "deepspeed/offload-pinned-by-default"]
    (exclusion,) = exclude([records[name] for name in names], rules).exclusions
    assert [name for name, _ in exclusion.rules] == names
    specifier = SpecifierSet(exclusion.specifier)
    for release in rules.releases("deepspeed"):
        bad = any(all_ordered(bounds_of(records[name], "deepspeed"), Version(release)) for name in names)
        assert specifier.contains(release, prereleases=True) is not bad, release


def test_one_clause_is_enough_at_the_ends(rules, records) -> None:
    older, newer = "deepspeed/zero-to-fp32-copies-twice", "deepspeed/muon-momentum-on-device"
    assert exclude([records[older]], rules).exclusions[0].specifier == ">=0.16.0"
    assert exclude([records[newer]], rules).exclusions[0].specifier == "<0.18.3"
    middle = exclude([records[MIDDLE]], rules).exclusions[0].specifier
    assert middle == ",".join(f"!=0.16.{patch}" for patch in range(8))


def test_releases_that_are_all_bad_are_said(rules, records) -> None:
    pair = [records[MIDDLE], records["deepspeed/zero3-params-kept-after-no-grad-forward"]]
    with pytest.raises(
        UsageError, match="no known release of deepspeed is free of deepspeed/zero3-params-kept-in-backward"
    ):
        exclude(pair, rules)


def test_rule_about_every_release_is_left_out(rules, records) -> None:
    record = records["deepspeed/zero3-reuse-window-stays-gathered"]
    assert exclude([record], rules) == Excluded((), ((record.rule_id, "is about every release of deepspeed"),))


def test_range_between_unknown_releases_is_left_out(rules, records) -> None:
    record = records[MIDDLE]
    stranger = record._replace(affected=tuple(entry._replace(package="demo") for entry in record.affected))
    reason = "has a range between good releases, and the releases of demo are not known"
    assert exclude([stranger], rules) == Excluded((), ((MIDDLE, reason),))


def test_formats_are_read_by_their_grammars(rules, records) -> None:
    exclusions = exclude([records[MIDDLE], records["trl/gkd-liger-keeps-hidden-states"]], rules).exclusions
    wanted = {exclusion.package: exclusion.specifier for exclusion in exclusions}
    lines = [line for line in format_constraints(exclusions, "title").splitlines() if not line.startswith("#")]
    assert lines == [name + specifier for name, specifier in wanted.items()]
    for key in ("constraint-dependencies", "override-dependencies"):
        table = parse_toml(format_uv(exclusions, "title", key), "uv.toml")
        assert table == {"tool": {"uv": {key: lines}}}
    data = json.loads(format_renovate(exclusions, "title"))
    assert {rule["matchPackageNames"][0]: rule["allowedVersions"] for rule in data["packageRules"]} == wanted
    for rule in data["packageRules"]:
        assert rule["matchDatasources"] == ["pypi"]
        assert not re.match(r"!?/", rule["allowedVersions"])  # would be read as a pattern
        assert rule["description"][0].partition(": ")[0] in records


def make_index(folder: Path, package: str, releases: tuple[str, ...]) -> None:
    """Write an empty wheel for each release."""
    folder.mkdir()
    stem = package.replace("-", "_")
    for release in releases:
        name = f"{stem}-{Version(release)}"
        with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(
                f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {release}\n"
            )
            wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{name}.dist-info/RECORD", "")


def run(*command: object, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8", check=False, cwd=directory)


def around_the_edges(releases: tuple[str, ...], bad: set[str]) -> tuple[str, ...]:
    """Choose the releases next to those where good turns to bad, and the newest."""
    edges = [index for index in range(1, len(releases)) if (releases[index - 1] in bad) != (releases[index] in bad)]
    near = {index + step for index in edges for step in (-2, -1, 0, 1)} | {len(releases) - 1}
    return tuple(releases[index] for index in sorted(near) if 0 <= index < len(releases))


@pytest.mark.versions
@pytest.mark.ci
@pytest.mark.parametrize("form", ["constraints", "uv", "uv-overrides"])
@pytest.mark.parametrize(
    "rule_id", [MIDDLE, "trl/gkd-liger-keeps-hidden-states", "openrlhf/pins-deepspeed-that-keeps-zero3-params"]
)
def test_uv_takes_exactly_the_good_releases(rules, records, tmp_path, rule_id, form) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH")
    (exclusion,) = exclude([records[rule_id]], rules).exclusions
    package = exclusion.package
    bounds = bounds_of(records[rule_id], package)
    expected = {release for release in rules.releases(package) if all_ordered(bounds, Version(release))}
    releases = around_the_edges(rules.releases(package), expected)
    head = '[project]\nname = "demo"\nversion = "1"\nrequires-python = ">=3.10"\n'
    good, bad = set(), set()
    for release in releases:
        folder = tmp_path / release
        folder.mkdir()
        make_index(folder / "index", package, (release,))
        command = [
            "uv",
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-index",
            "--no-cache",
            "--prerelease",
            "allow",
        ]
        command += ["--find-links", "index"]
        if form == "constraints":
            (folder / "constraints.txt").write_text(format_constraints([exclusion], "title"))
            (folder / "requirements.in").write_text(f"{package}\n")
            done = run(*command, "requirements.in", "--constraint", "constraints.txt", directory=folder)
        else:
            key = "override-dependencies" if form == "uv-overrides" else "constraint-dependencies"
            # An override replaces what is required, here a pin of nothing that exists.
            wanted = f"{package}==99" if form == "uv-overrides" else package
            text = f'{head}dependencies = ["{wanted}"]\n{format_uv([exclusion], "title", key)}'
            (folder / "pyproject.toml").write_text(text)
            done = run(*command, "pyproject.toml", directory=folder)
        (good if done.returncode == 0 else bad).add(release)
        assert done.returncode == 0 or "No solution found" in done.stderr, done.stderr
    assert bad == expected & set(releases)
    assert good == set(releases) - expected
    assert good
    assert bad


def test_pip_takes_only_good_releases(rules, records, tmp_path) -> None:
    (exclusion,) = exclude([records[MIDDLE]], rules).exclusions
    (tmp_path / "constraints.txt").write_text(format_constraints([exclusion], "title"))
    outcomes = {}
    for release in ("0.15.4", "0.16.0", "0.16.7", "0.16.8"):
        make_index(tmp_path / release, "deepspeed", (release,))
        done = run(
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--isolated", "--no-deps", "--no-index"),
            *("--target", tmp_path / "target", "--find-links", tmp_path / release),
            *("--constraint", tmp_path / "constraints.txt", "deepspeed"),
        )
        if "No module named pip" in done.stderr:
            pytest.skip("this interpreter has no pip")
        outcomes[release] = done.returncode == 0
        refusals = ("No matching distribution", "ResolutionImpossible")
        assert done.returncode == 0 or any(text in done.stderr for text in refusals), done.stderr
    assert outcomes == {"0.15.4": True, "0.16.0": False, "0.16.7": False, "0.16.8": True}
