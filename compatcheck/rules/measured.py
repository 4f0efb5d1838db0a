"""What was measured behind a rule over releases: one setting, one metric, every release in a file of its evidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from compatcheck.rules.rule import Comparison, EvidenceSelection, Rule

_BESIDE = ("python", "torch")
"""Releases that may differ along a series: what runs the package, and is not what the step is in."""


def read_series(rule: Rule, root: Path) -> dict[str, object] | None:
    """Return package, metric, probe, back end, parameters and points of the first comparison of two releases with a step.

    Args:
        rule: with its evidence.
        root: folder that the paths of the evidence are relative to; what is missing or no measurement there gives nothing.
    """
    for comparison in rule.comparisons:
        package = _compared_package(comparison)
        if package is None:
            continue
        metric = comparison.suspect.metric or comparison.metric
        measured = [one for one in _read(root / comparison.suspect.file) if one.get("status") == "ok"]
        first = next((one for one in measured if selects(comparison.suspect, one["versions"], one["parameters"])), None)
        if first is None:
            continue
        alike = [one for one in measured if _setting(one, package) == _setting(first, package)]
        values = {str(one["versions"][package]): _metric(one, metric) for one in alike if package in one["versions"]}
        compared = {one.versions.get(package) for one in (comparison.suspect, comparison.baseline) if one is not None}
        points = [[release, value] for release, value in sorted(values.items(), key=_release) if value is not None]
        if compared <= set(values) and len({value for _, value in points}) > 1:
            shown = {"probe": first["probe"], "backend": first["backend"], "parameters": first["parameters"]}
            return {"package": package, "metric": metric, **shown, "points": points}
    return None


def _compared_package(comparison: Comparison) -> str | None:
    """Return the one package whose release is all that two selections of a file differ in; None where it is not so."""
    suspect, baseline = comparison.suspect, comparison.baseline
    if baseline is None or (suspect.file, suspect.metric, suspect.parameters) != (
        baseline.file,
        baseline.metric,
        baseline.parameters,
    ):
        return None
    names = {*suspect.versions, *baseline.versions}
    differing = [name for name in names if suspect.versions.get(name) != baseline.versions.get(name)]
    return differing[0] if len(differing) == 1 else None


def selects(selection: EvidenceSelection, versions: Mapping[str, str], parameters: Mapping[str, Any]) -> bool:
    """Tell whether a selection names the measurement with these releases and parameters."""
    return all(versions.get(name) == version for name, version in selection.versions.items()) and all(
        _parameter(parameters, name) == value for name, value in selection.parameters.items()
    )


def _parameter(parameters: Mapping[str, Any], name: str) -> object:
    """Return a parameter, ``config.num_hidden_layers`` from inside another; None where it is not stated."""
    value: Any = parameters
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """Read lines of measurements as they stand, with what they share; `compatcheck.lab.measurement_files` has the format."""
    if path.suffix != ".jsonl" or not path.is_file():
        return
    common: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        if "compatcheck_measurements" in data:
            common = data.get("common", {})
            continue
        shared = {name: {**common.get(name, {}), **data.get(name, {})} for name in ("parameters", "versions")}
        yield {**common, **data, **shared}


def _setting(measurement: Mapping[str, Any], package: str) -> object:
    versions = {name: value for name, value in measurement["versions"].items() if name not in (package, *_BESIDE)}
    return (
        versions,
        measurement["parameters"],
        measurement["probe"],
        measurement["backend"],
        measurement.get("accounting"),
    )


def _metric(measurement: Mapping[str, Any], name: str) -> float | None:
    """Return one quantity, as `compatcheck.lab.measurement.Measurement.metric` does."""
    results, phases = measurement.get("results", {}), measurement.get("phases", [])
    if name in results:
        return results[name]  # type: ignore[no-any-return]
    wanted, _, attribute = name.rpartition(".")
    found = [phase[attribute] for phase in phases if wanted in {"", phase["name"]} and phase.get(attribute) is not None]
    return max(found, default=None)


def _release(point: tuple[str, float | None]) -> tuple[bool, Version | str]:
    try:
        return True, Version(point[0])
    except InvalidVersion:
        return False, point[0]
