"""Confirmations as text and JSON."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.measurement import to_json as measurement_json
from compatcheck.lab.reporters.measurement import describe_versions, show_exactly, wrap_text

if TYPE_CHECKING:
    from compatcheck.lab.confirmation import Confirmation
    from compatcheck.lab.joint_prediction import ExperimentResult
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.pairs import Trial


def format_text(found: Confirmation) -> str:
    """Format one confirmation: both sides, the difference beside the formula, the verdict."""
    lines = [f"{found.rule_id}: {found.verdict}", *_wrap(found.reason)]
    if found.metric is not None:
        lines += ["", f"  {found.probe}: {found.metric}"]
        for name, side in (("suspect", found.suspect), ("baseline", found.baseline)):
            if side is not None:
                value = show_exactly(found.metric, side.metric(found.metric))
                lines.append(f"  {name:<9} {value:>26}  {_releases(side)}{_differing(found, side)}")
        lines.append(f"  {'more by':<9} {show_exactly(found.metric, found.measured_bytes):>26}")
        if found.predicted_bytes is not None:
            text = f"  {'formula':<9} {show_exactly(found.metric, found.predicted_bytes):>26}"
            if found.low_bytes != found.high_bytes:
                text += f"  ({show_exactly(found.metric, found.low_bytes)} to {show_exactly(found.metric, found.high_bytes)})"
            lines.append(text)
        if found.suspect is not None and found.suspect.command:
            lines += ["", f"  $ {found.suspect.command}"]
    return "\n".join(lines) + "\n"


def format_trial(rule_id: str, trial: Trial) -> str:
    """Format what would be measured: both sides with the parameters that differ between them or from the probe's defaults."""
    lines = wrap_text(f"{rule_id}: {trial.probe.name} {trial.metric}", "", "  ")
    sides = {"suspect": (trial.suspect, trial.parameters)}
    if trial.baseline is not None:
        sides["baseline"] = (trial.baseline, trial.baseline_parameters)
    names = [
        name
        for name, default in trial.probe.module.DEFAULTS.items()
        if any(parameters[name] != default for _, parameters in sides.values())
    ]
    for side, (release, parameters) in sides.items():
        shown = "".join(f" {name}={show_parameter(parameters[name])}" for name in names)
        lines += wrap_text(f"  {side:<9} {trial.package} {release} {shown}".rstrip(), "", " " * 12)
    if trial.baseline is None:
        lines.append(
            f"  baseline  {'none: the metric is what is lost' if trial.loss else 'what the probe predicts of a healthy release'}"
        )
    return "\n".join(lines) + "\n"


def format_experiment(found: ExperimentResult) -> str:
    """Format an experiment: how many cells are as predicted, each that is not, and why others say nothing."""
    verdicts = Counter(outcome.verdict for _, outcome in found.outcomes)
    lines = [
        f"{found.rule_id}: " + (", ".join(f"{count} {name}" for name, count in sorted(verdicts.items())) or "no cells")
    ]
    for cell, outcome in found.outcomes:
        if outcome.verdict == "wrong":
            bounds = " to ".join(
                show_exactly(cell.metric, bound) for bound in dict.fromkeys((outcome.low, outcome.high))
            )
            measured = show_exactly(cell.metric, outcome.measured)
            text = f"  wrong: {_describe_cell(cell)}: {measured} more; {outcome.status}, {bounds} predicted"
            lines += wrap_text(text, "", "    ")
    for reason, count in Counter(outcome.reason for _, outcome in found.outcomes if outcome.reason).most_common():
        lines += wrap_text(f"  {count} cells: {reason}", "", "    ")
    lines += [line for one in found.untried for line in wrap_text(f"  not tried: {one}", "", "    ")]
    return "\n".join(lines) + "\n"


def _describe_cell(cell: Trial) -> str:
    """Name a cell by its release, the one it is compared with, and what differs from the probe's defaults."""
    defaults = cell.probe.module.DEFAULTS
    given = [f"{name}={show_parameter(value)}" for name, value in cell.parameters.items() if value != defaults[name]]
    against = f" against {cell.baseline}" if cell.baseline not in {None, cell.suspect} else ""
    return " ".join([cell.probe.name, cell.package, f"{cell.suspect}{against}", *given])


def experiment_to_json(found: ExperimentResult) -> dict[str, Any]:
    """Return an experiment as JSON data."""
    return {
        "rule_id": found.rule_id,
        "cells": [
            {
                "probe": cell.probe.name,
                "metric": cell.metric,
                "package": cell.package,
                "release": cell.suspect,
                "baseline": cell.baseline,
                "parameters": dict(cell.parameters),
                "baseline_parameters": dict(cell.baseline_parameters),
                **outcome._asdict(),
            }
            for cell, outcome in found.outcomes
        ],
        "untried": list(found.untried),
    }


def to_json(found: Confirmation) -> dict[str, Any]:
    """Return a confirmation as JSON data."""
    return {
        "rule_id": found.rule_id,
        "verdict": found.verdict,
        "reason": found.reason,
        "probe": found.probe,
        "metric": found.metric,
        "suspect": None if found.suspect is None else measurement_json(found.suspect),
        "baseline": None if found.baseline is None else measurement_json(found.baseline),
        "predicted_bytes": found.predicted_bytes,
        "low_bytes": found.low_bytes,
        "high_bytes": found.high_bytes,
        "measured_bytes": found.measured_bytes,
    }


def _releases(measurement: Measurement) -> str:
    return describe_versions(
        {name: text for name, text in measurement.versions.items() if name not in {"python", "torch"}}
    )


def _differing(found: Confirmation, side: Measurement) -> str:
    """Name the parameters of a side that the other one has another value of."""
    if found.suspect is None or found.baseline is None:
        return ""
    one, other = found.suspect.parameters, found.baseline.parameters
    names = [name for name in side.parameters if one.get(name) != other.get(name)]
    return "".join(f" {name}={show_parameter(side.parameters[name])}" for name in names)


def _wrap(text: str) -> list[str]:
    return wrap(text, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
