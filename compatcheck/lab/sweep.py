"""Measure probes over many releases and find where their numbers change."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from compatcheck.lab.holding import attribute
from compatcheck.lab.rechecking import recheck
from compatcheck.lab.release_series import Series, SeriesChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task


def vary(parameters: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of parameter values, in the order given."""
    return [dict(zip(parameters, values, strict=True)) for values in product(*parameters.values())]


def find_varying(tasks: Sequence[Task]) -> frozenset[tuple[str, str]]:
    """Return probe and name of each parameter that tells tasks of one probe apart."""
    values: dict[tuple[str, str], set[str]] = {}
    for task in tasks:
        for name, value in task.parameters.items():
            values.setdefault((task.probe.name, name), set()).add(json.dumps(value))
    return frozenset(key for key, found in values.items() if len(found) > 1)


def collect_series(
    tasks: Sequence[Task], results: Mapping[str, Sequence[Measurement]], *, every_metric: bool
) -> list[Series]:
    """Put the values of each task's metrics in the order of the releases.

    Args:
        tasks: what was measured, in the order of each release's measurements.
        results: release → measurements, oldest first.
        every_metric: take every result and every phase, not those alone that the probe names.
    """
    series = []
    for index, task in enumerate(tasks):
        predicted = task.probe.module.predict(task.parameters)
        for metric in _metrics(task, [measured[index] for measured in results.values()], every=every_metric):
            values = {
                version: value
                for version, measured in results.items()
                if measured[index].succeeded and (value := measured[index].metric(metric)) is not None
            }
            if values:
                series.append(
                    Series(
                        probe=task.probe.name,
                        parameters=task.parameters,
                        backend=task.backend,
                        metric=metric,
                        predicted=predicted.get(metric),
                        values=values,
                        changed=task.probe.list_changed(task.parameters),
                    )
                )
    return series


def _metrics(task: Task, measurements: Sequence[Measurement], *, every: bool) -> list[str]:
    names = list(task.probe.compared)
    if every:
        for measurement in measurements:
            names += measurement.results
            for phase in measurement.phases:
                names += [f"{phase.name}.peak_allocated_bytes", f"{phase.name}.live_bytes"]
    return list(dict.fromkeys(names))


def find_changes(series: Sequence[Series]) -> list[SeriesChange]:
    """Return where a value differs from that of the release before by more than the tolerance."""
    return [
        SeriesChange(series=one, before=before, after=after)
        for one in series
        for before, after in pairwise(one.values)
        if one.tells_apart(one.values[before], one.values[after])
    ]


def attribute_changes(
    changes: Sequence[SeriesChange], tasks: Sequence[Task], laboratory: Laboratory
) -> list[SeriesChange]:
    """Find out whose each change is, those between the same releases at once, and whether what grew lasts."""
    found = list(changes)
    sides = dict.fromkeys((change.before, change.after) for change in changes)
    for before, after in sides:
        chosen = [index for index, one in enumerate(changes) if (one.before, one.after) == (before, after)]
        wanted = [task_of(changes[index].series, tasks) for index in chosen]
        shown = [changes[index].shown_by for index in chosen]
        for index, attribution in zip(chosen, attribute(laboratory, before, after, wanted, shown), strict=True):
            found[index] = replace(changes[index], attribution=attribution)
        # What a prediction judges needs no second look.
        grown = [i for i in chosen if found[i].difference > 0 and found[i].series.predicted is None]
        grown = [index for index in grown if found[index].is_own or found[index].is_doubtful]
        several = [found[index] for index in grown]
        seconds = recheck(laboratory, several, [task_of(one.series, tasks) for one in several])
        for index, second in zip(grown, seconds, strict=True):
            found[index] = replace(found[index], recheck=second)
    return found


def list_held(changes: Sequence[SeriesChange]) -> list[Measurement]:
    """Return what was measured with all else held or with longer rows, each once."""
    pairs = [pair for change in changes if change.attribution for pair in change.attribution.held]
    pairs += [change.recheck.longer for change in changes if change.recheck and change.recheck.longer]
    return list({id(one): one for pair in pairs for one in (pair.before, pair.after)}.values())


def task_of(series: Series, tasks: Sequence[Task]) -> Task:
    """Return the task whose measurements a series is made of."""
    return next(
        task
        for task in tasks
        if (task.probe.name, task.parameters, task.backend) == (series.probe, series.parameters, series.backend)
    )


def group_changes(changes: Sequence[SeriesChange]) -> list[list[SeriesChange]]:
    """Put together the changes of one probe and metric between the same releases: one cause, seen in many model types."""
    groups: dict[str, list[SeriesChange]] = {}
    for change in changes:
        key = json.dumps(
            [
                *(change.series.probe, change.series.metric, change.before, change.after, change.difference > 0),
                change.attribution and change.attribution.cause,
            ]
        )
        groups.setdefault(key, []).append(change)
    return list(groups.values())
