"""New releases of packages since the last look: measured against the release before, attributed, and written up."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_text
from compatcheck.core.versions import parse_version
from compatcheck.lab.drafts import write_drafts
from compatcheck.lab.evidence.files import write_measurements, write_whole
from compatcheck.lab.history import find_repository
from compatcheck.lab.holding import measure_beside
from compatcheck.lab.matrix import choose_rows
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.probes.script import make_script
from compatcheck.lab.release_series import Series
from compatcheck.lab.reporters.watch import format_upstream
from compatcheck.lab.sweep import attribute_changes, collect_series, find_changes, list_held, task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task
    from compatcheck.lab.release_series import SeriesChange
    from compatcheck.lab.releases import Axis

PACKAGES = (
    *("trl", "peft", "accelerate", "transformers", "deepspeed", "liger-kernel", "bitsandbytes", "torchao", "torch"),
    *("verl", "openrlhf", "axolotl", "llamafactory", "ms-swift", "unsloth", "unsloth-zoo", "torchtune", "lightning"),
    *("vllm", "sglang", "flash-attn", "xformers", "triton", "transformer-engine", "megatron-core", "optimum"),
    *("datasets", "tokenizers", "ray", "tensordict"),
)
"""Those that are looked at where none is named."""
LEAST_GROWTH = 0.02
"""Share of a number by which it has to grow: tiny models differ by less in what no one would file."""
LEAST_BYTES = 4096
"""Bytes by which it has to grow: less is what a run logs."""
MOST_TRIES = 7
"""Looks that try a release which cannot be installed: an index is back by then, a build that fails still does."""
MOST_OLDER = 3
"""Releases that are tried in the place of one that nothing could be measured in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one new release showed beside the one before."""

    package: str
    before: str
    after: str
    series: tuple[Series, ...]
    changes: tuple[SeriesChange, ...]
    """All that changed, attributed where it grew."""
    results: Mapping[str, Sequence[Measurement]]
    known: tuple[str, ...] = ()
    """The releases that there are from the one before to the new one, measured or not, oldest first."""

    @property
    def grown(self) -> tuple[SeriesChange, ...]:
        """What grew, is the package's own, and lasts."""
        return tuple(change for change in self.changes if change.is_own and is_growth(change))

    @property
    def dropped(self) -> tuple[SeriesChange, ...]:
        """What grew in this run alone."""
        return tuple(change for change in self.changes if not change.lasts and is_growth(change))

    @property
    def doubtful(self) -> tuple[SeriesChange, ...]:
        """What grew, and may be the package's own or that of what came with it."""
        return tuple(change for change in self.changes if change.is_doubtful and is_growth(change))

    @property
    def measured(self) -> bool:
        """Whether anything could be compared."""
        return any(len(one.values) > 1 for one in self.series)

    @property
    def installed(self) -> bool:
        """Whether the new release could be installed at all; the index may be away, or a disk full."""
        return any(one.device != "none" for one in self.results[self.after])

    @property
    def lost(self) -> list[Measurement]:
        """What ran in the release before and does not in the new one."""
        pairs = zip(self.results[self.before], self.results[self.after], strict=True)
        return [after for before, after in pairs if before.succeeded and not after.succeeded]

    @property
    def reason(self) -> str:
        """Why nothing could be compared."""
        for version in (self.after, self.before):
            if not any(one.succeeded for one in self.results[version]):
                return f"{version}: {self.results[version][0].reason}"
        return "no run can be measured in both"


class State:
    """The release of each package that was looked at last, and those that could not be installed, in a file."""

    def __init__(self, path: str) -> None:
        """Read a file, if it is there.

        Raises:
            InputError: it is none of this program's.
        """
        self.path = path
        self.looked: dict[str, str] = {}
        self.failed: dict[str, dict[str, int]] = {}
        """Package → release that could not be installed → looks that tried."""
        if not os.path.exists(path):
            return
        data = parse_json(read_text(path), path)
        looked = data.get("looked") if isinstance(data, dict) else None
        failed = data.get("failed", {}) if isinstance(data, dict) else None
        if not (
            isinstance(looked, dict)
            and all(isinstance(one, str) and parse_version(one) for one in looked.values())
            and isinstance(failed, dict)
            and all(isinstance(one, dict) and all(type(n) is int for n in one.values()) for one in failed.values())
        ):
            message = "holds no state of `compatcheck watch`"
            raise InputError(message, source=Source(path), hint="name another file, or remove it")
        self.looked, self.failed = dict(looked), dict(failed)

    def again(self, package: str) -> list[str]:
        """Return the releases that are tried once more."""
        return [version for version, tries in self.failed.get(package, {}).items() if tries < MOST_TRIES]

    def keep(self, package: str, version: str, axis: Axis, *, installed: bool) -> None:
        """Note that a release was looked at, or could not be installed, at once and whole."""
        looked, failed = self.looked.get(package), self.failed.setdefault(package, {})
        if looked is None or _is_after(axis, version, looked):
            self.looked[package] = version
        tries = failed.pop(version, 0)
        if not installed:
            failed[version] = tries + 1
        data = {"looked": self.looked, "failed": {name: one for name, one in self.failed.items() if one}}
        write_whole(self.path, json.dumps(data, indent=1, sort_keys=True) + "\n")


def choose_pairs(axis: Axis, looked: str | None, since: str | None, again: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return each new release after the one before it, in the order of their days.

    Args:
        axis: the releases of a package, oldest first.
        looked: the one that was looked at last; with none those since a day are new, or the newest one.
        since: ISO date, where none was.
        again: releases that are tried once more.
    """
    pairs = list(zip(axis.names, axis.names[1:], strict=False))
    if looked is not None:
        new = {pair for pair in pairs if _is_after(axis, pair[1], looked)}
    elif since is not None:
        new = {pair for pair in pairs if axis.dates.get(pair[1], "") >= since}
    else:
        new = set(pairs[-1:])
    new |= {pair for pair in pairs if pair[1] in again}
    return sorted(new, key=lambda pair: (axis.dates.get(pair[1], "9999"), Version(pair[1])))


def _is_after(axis: Axis, version: str, other: str) -> bool:
    """Tell whether a release came out after another: one of an older minor version may."""
    day, last = axis.dates.get(version), axis.dates.get(other)
    return day > last if day and last and day != last else Version(version) > Version(other)


def choose_tasks(
    names: Sequence[str], package: str, backend: str, axes: Mapping[str, Sequence[Any]]
) -> tuple[list[Task], tuple[str, ...]]:
    """Return what is measured of a package, and the packages that have to be beside it.

    Args:
        names: of probes; all that use the package where none is named.
        package: whose releases.
        backend: where.
        axes: parameter → values instead of a probe's own choices.
    """
    probes = [find_probe(name) for name in names or probe_names()]
    probes = [probe for probe in probes if backend in probe.module.BACKENDS]
    tasks = [make_task(probe, row, backend) for probe in probes for row in choose_rows(probe, package, axes)]
    needed = dict.fromkeys(name for task in tasks for name in task.probe.needs(task.parameters) if name != package)
    return tasks, tuple(needed)


def look(laboratory: Laboratory, pair: tuple[str, str], tasks: Sequence[Task], older: Sequence[str]) -> Look:
    """Measure a release and the one before, and find out whose what grew is.

    Args:
        laboratory: of the package.
        pair: the release before, and the new one.
        tasks: what is measured in both.
        older: what came before both, oldest first: the newest of them that can be measured stands in for a release before
            that cannot, or what grew there would never be seen.
    """
    before, after = pair
    results = dict(laboratory.measure_all(dict.fromkeys(pair, tasks)))
    for version in reversed(older[-MOST_OLDER:]):
        if any(one.succeeded for one in results[before]) or not any(one.succeeded for one in results[after]):
            break
        before = version
        results = {version: laboratory.measure(version, tasks), **results}
    series = collect_series(tasks, _hold_neighbours(laboratory, before, after, tasks, results), every_metric=False)
    changes = find_changes(series)
    grown = [change for change in changes if is_growth(change)]
    attributed = attribute_changes(grown, tasks, laboratory)
    replaced = {id(change): found for change, found in zip(grown, attributed, strict=True)}
    released = (*older, *(version for version in pair if version not in older))
    return Look(
        known=tuple(released[released.index(before) :]),
        package=laboratory.package,
        before=before,
        after=after,
        series=tuple(series),
        changes=tuple(replaced.get(id(change), change) for change in changes),
        results=results,
    )


def _hold_neighbours(
    laboratory: Laboratory, before: str, after: str, tasks: Sequence[Task], results: Mapping[str, Sequence[Measurement]]
) -> dict[str, list[Measurement]]:
    """Return both sides beside the packages of the new release, as far as the one before runs beside them."""
    sides = {version: list(results[version]) for version in (before, after)}
    if all(any(one.device != "none" for one in several) for several in sides.values()):
        held = measure_beside(laboratory, before, after, tasks) or sides[before]
        sides[before] = [one if one.succeeded else own for one, own in zip(held, sides[before], strict=True)]
    return sides


def is_growth(change: SeriesChange) -> bool:
    """Tell whether a number grew by as much as is worth a flag, a neighbour's share left out where it is known.

    One that comes back to nothing from below does not grow.
    """
    before, after = (max(0.0, value) for value in change.sides)
    return after - before > LEAST_GROWTH * before and (
        after - before >= LEAST_BYTES or not is_bytes(change.series.metric)
    )


def is_bytes(metric: str) -> bool:
    """Tell whether a metric counts bytes, of a whole run or of one step of it."""
    return metric.endswith("_bytes") or metric.startswith("growth_bytes")


def write_look(found: Look, directory: str, tasks: Sequence[Task], laboratory: Laboratory) -> list[str]:
    """Write what a look found: the measurements behind it, and for what grew draft rules and a page for the maintainers."""
    folder = Path(directory)
    name = f"{found.package}-{found.after}"
    paths = []
    measured = [one for several in found.results.values() for one in several if one.device != "none"]
    held = [one for one in list_held(found.changes) if one.device != "none"]
    for kept, several in ((f"{name}.jsonl", measured), (f"{name}.held.jsonl", held)):
        path = folder / "measurements" / found.package / kept
        if several:
            write_measurements(str(path), several)
    if found.grown:
        paths += write_drafts(directory, found.package, found.grown, found.results, found.known)
        page = folder / "reports" / f"{name}.md"
        write_whole(str(page), _report(found, tasks, laboratory))
        paths.append(str(page))
    return paths


def read_series(directory: str, names: Sequence[str]) -> dict[str, list[Series]]:
    """Return, for each package, the numbers that all looks so far have followed, over its releases.

    Args:
        directory: where looks are written.
        names: of probes beside those of the catalogue.
    """
    probes = {probe.name: probe for probe in map(find_probe, (*probe_names(), *names))}
    found: dict[str, list[Series]] = {}
    for folder in sorted(path for path in (Path(directory) / "measurements").glob("*") if path.is_dir()):
        values: dict[tuple[str, str, str, str], dict[str, float]] = {}
        for file in folder.glob("*.jsonl"):
            for one in () if file.name.endswith(".held.jsonl") else read_measurements(str(file)):
                run = (one.probe, one.backend, json.dumps(dict(one.parameters), sort_keys=True))
                for metric in probes[one.probe].compared if one.succeeded and one.probe in probes else ():
                    if (value := one.metric(metric)) is not None:
                        values.setdefault((*run, metric), {})[one.versions[folder.name]] = value
        found[folder.name] = [
            Series(
                probe=probe,
                parameters=json.loads(parameters),
                backend=backend,
                metric=metric,
                predicted=None,
                values=dict(sorted(several.items(), key=lambda item: Version(item[0]))),
                changed=probes[probe].list_changed(json.loads(parameters)),
            )
            for (probe, backend, parameters, metric), several in values.items()
        ]
    return found


def _report(found: Look, tasks: Sequence[Task], laboratory: Laboratory) -> str:
    """Write the page for the maintainers: the greatest growth first, with a script of it."""
    changes = sorted(found.grown, key=lambda one: one.sides[1] - one.sides[0], reverse=True)
    first = changes[0].series
    task = task_of(first, tasks)
    index = next(number for number, one in enumerate(tasks) if one is task)
    return format_upstream(
        found.package,
        changes,
        {one.probe.name: one.probe.module.DEFAULTS for one in tasks},
        found.results[found.after][index],
        find_repository(laboratory, found.after),
        # Halfway: a script counts storages where the allocator was counted, which differs by what operators take inside.
        make_script(task, brief=True, healthy=(first.metric, sum(changes[0].sides) / 2)),
        title=task.probe.title,
    )
