"""Memory across releases: what the committed sweeps measured of each package, as pages."""

from __future__ import annotations

import json
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.lab.evidence.last_measured import exported_evidence
from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.release_series import Series
from compatcheck.lab.reporters.measurement import show_quantity
from compatcheck.lab.sweep import find_changes
from compatcheck.reporters.figure import draw_steps
from compatcheck.rules.named_rule import list_rules
from docs.generator.page import escape_prose, fold, link, make_page, show_figure, write_table
from docs.generator.releases import list_finals
from docs.generator.strips import Band, Strip, draw_strips

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.probes.probe import Probe
    from compatcheck.rules.database import RuleSet
    from docs.generator.page import Page

INDEX = "releases/index.md"
_SHOWN = 10
"""Strips of one figure; further ones unfold."""
_NAMED = 6
"""Members of one history that a label names."""
_FEW = 2
"""Measured releases of which one number says nothing of a history."""


class _Swept(NamedTuple):
    """What one probe measured over the releases of a package."""

    probe: Probe
    package: str
    series: tuple[Series, ...]


class _History(NamedTuple):
    """Series of one metric that have the same values in the same releases."""

    members: tuple[Series, ...]
    labels: tuple[str, ...]

    @property
    def label(self) -> str:
        """What it is of, shortened."""
        more = len(self.labels) - _NAMED
        return ", ".join(self.labels[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def join_runs(series: Series) -> Iterator[tuple[str, str, float]]:
    """Join neighbouring measured releases of one value: the first, the last and the value."""
    for value, group in groupby(series.values.items(), key=lambda item: item[1]):
        versions = [version for version, _ in group]
        yield versions[0], versions[-1], value


def make_release_pages(rules: RuleSet, rule_path: partial[str]) -> Iterator[Page]:
    """Make a page for each package whose releases were swept, and their index.

    Args:
        rules: their releases and their rules.
        rule_path: tells the page of a rule.
    """
    swept: dict[str, list[_Swept]] = {}
    for one in _read_sweeps(rules):
        swept.setdefault(one.package, []).append(one)
    yield make_page(INDEX, _write_index(swept))
    for package, found in swept.items():
        yield make_page(package_path(package), _write_package(package, found, rules, rule_path))


def package_path(package: str) -> str:
    """Return the page of a swept package."""
    return f"releases/{package}.md"


def list_swept(rules: RuleSet) -> list[str]:
    """Return the packages that have a page."""
    return sorted({one.package for one in _read_sweeps(rules)})


def _read_sweeps(rules: RuleSet) -> Iterator[_Swept]:
    root = exported_evidence()
    assert root is not None  # noqa: S101 (the site is built in a checkout)
    for path in sorted(Path(root).glob("*/releases*.jsonl")):
        probe = find_probe(path.parent.name)
        package = probe.module.PACKAGES[0]
        order = {release: place for place, release in enumerate(list_finals(rules.releases(package)))}
        found: dict[str, dict[str, Series]] = {}
        for one in read_measurements(str(path)):
            release = one.versions.get(package, "")
            if not one.succeeded or release not in order:
                continue
            for name in _choose_metrics(one.results, probe.module.METRIC):
                value = one.metric(name)
                key = json.dumps([dict(one.parameters), one.backend, one.accounting], sort_keys=True)
                series = found.setdefault(name, {}).setdefault(
                    key,
                    Series(
                        probe=probe.name,
                        parameters=one.parameters,
                        backend=one.backend,
                        metric=name,
                        predicted=probe.module.predict(one.parameters).get(name),
                        values={},
                    ),
                )
                if value is not None:
                    series.values[release] = round(value, 3)  # type: ignore[index]  # filled here
        series = [
            Series(
                probe=one.probe,
                parameters=one.parameters,
                backend=one.backend,
                metric=one.metric,
                predicted=one.predicted,
                values=dict(sorted(one.values.items(), key=lambda item: order[item[0]])),
            )
            for metric in found.values()
            for one in metric.values()
            if len(one.values) > _FEW
        ]
        if series:
            yield _Swept(probe, package, tuple(series))


def _choose_metrics(results: Iterable[str], headline: str) -> list[str]:
    """Return the quantities per logit, token, parameter or layer, the headline first; that alone where there are none."""
    per = [name for name in results if "_per_" in name]
    return sorted(per, key=lambda name: name != headline) or [headline]


def _write_index(swept: Mapping[str, Sequence[_Swept]]) -> Iterator[str]:
    yield "# Memory across releases"
    yield (
        "What a package's own code holds per logit, per token, per parameter or per layer, measured in its releases on a CPU, with tiny"
        " sizes and the dependencies of each release's day. No GPU is needed to see a release double what it keeps. The"
        " measurements are in `fixtures/measurements/`; `compatcheck sweep` makes them again."
    )
    rows = []
    for package, found in swept.items():
        releases = sorted(
            {release for one in found for series in one.series for release in series.values},
            key=lambda release: [int(part) if part.isdigit() else 0 for part in release.split(".")],
        )
        changes = {
            (change.series.probe, change.before, change.after) for one in found for change in find_changes(one.series)
        }
        rows.append(
            (
                link(package, INDEX, package_path(package)),
                f"{releases[0]} to {releases[-1]}",
                str(len(found)),
                str(len(changes)),
            )
        )
    yield write_table(("package", "releases", "probes:", "steps found:"), rows)
    yield "## Where numbers grew"
    yield "Every step up, by probe. One step may be of many model types or losses; the page of the package has them all."
    steps: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {}
    for package, found in swept.items():
        for change in (change for one in found for change in find_changes(one.series) if change.difference > 0):
            values = change.series.values
            key = package, f"{change.before} → {change.after}", change.series.probe, change.series.metric
            steps.setdefault(key, []).append((values[change.before], values[change.after]))
    yield write_table(
        ("package", "between", "quantity", "from:", "to:"),
        [
            (
                link(package, INDEX, f"{package_path(package)}#{heading(probe)}"),
                between,
                _words(metric),
                _extent(metric, [one for one, _ in pairs]),
                _extent(metric, [one for _, one in pairs]),
            )
            for (package, between, probe, metric), pairs in steps.items()
        ],
    )


def _extent(metric: str, values: Sequence[float]) -> str:
    low, high = show_quantity(metric, min(values)), show_quantity(metric, max(values))
    return low if low == high else f"{low} to {high}"


def heading(probe: str) -> str:
    """Return the name of a probe's heading, as the site makes it of its words."""
    return _words(probe).replace(" ", "-")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _write_package(package: str, found: Sequence[_Swept], rules: RuleSet, rule_path: partial[str]) -> Iterator[str]:
    page = package_path(package)
    yield f"# {package} across releases"
    yield (
        "Each strip is one history: blue is what a healthy release holds, and the deeper the red, the more above it; pale grey was not"
        " measured or gave no number. Between two measured releases with one value the others are taken to have it too."
    )
    for one in found:
        yield f"## {_words(one.probe.name)}"
        yield escape_prose(one.probe.title)
        told = [rule for rule in list_rules(rules, (), inactive=False) if _is_about(rules.texts(rule), one.probe.name)]
        if told:
            yield (
                "Rules that tell of it: "
                + ", ".join(link(f"`{rule.id}`", page, rule_path(rule.id)) for rule in told)
                + "."
            )
        seen: list[list[Mapping[str, float]]] = []
        for metric in dict.fromkeys(series.metric for series in one.series):
            values = [series.values for series in one.series if series.metric == metric]
            if values not in seen:  # the headline is often another quantity, chosen by a parameter
                seen.append(values)
                yield from _write_metric(one, metric, rules)
        yield f"```sh\ncompatcheck sweep {one.probe.name} --package {package} --torch 2.13.0+cpu\n```"


def _is_about(texts: object, probe: str) -> bool:
    use, evidence = texts.probe, texts.evidence  # type: ignore[attr-defined]  # `Texts`
    return (use is not None and use["name"] == probe) or any(f"/{probe}/" in path for path in evidence)


def _write_metric(one: _Swept, metric: str, rules: RuleSet) -> Iterator[str]:
    series = [found for found in one.series if found.metric == metric]
    names = _name_all(series)
    groups: dict[str, list[Series]] = {}
    for found in series:
        groups.setdefault(json.dumps([list(found.values.items()), found.predicted]), []).append(found)
    histories = [
        _History(tuple(members), tuple(names[id(member)] for member in members)) for members in groups.values()
    ]
    moving = [history for history in histories if len({*history.members[0].values.values()}) > 1]
    moving.sort(key=lambda history: -len(history.members))
    still = [history for history in histories if history not in moving]
    yield f"### {_words(metric)}"
    if moving:
        releases = list_finals(rules.releases(one.package))
        places = [releases.index(version) for history in moving for version in history.members[0].values]
        releases = releases[min(places) : max(places) + 1]
        first = moving[0]
        name = f"{one.probe.name}-{metric}"
        title = f"{_words(metric)}, {one.package}"
        points = list(first.members[0].values.items())
        yield show_figure(
            draw_steps(
                f"{name}-steps",
                f"{title}: {first.label}" if first.label else title,
                points,
                partial(show_quantity, metric),
            )
        )
        for number, part in enumerate((moving[:_SHOWN], moving[_SHOWN:])):
            if part:
                strips = [
                    Strip(
                        history.label or one.probe.name, tuple(_bands(history.members[0], releases, one.probe, metric))
                    )
                    for history in part
                ]
                drawn = show_figure(draw_strips(f"{name}-{number}", f"{title}, each history", releases, strips))
                table = write_table(
                    (one.package, "healthy:", "measured"), [_tabulate(history, metric) for history in part]
                )
                yield from (
                    (drawn, fold("As a table", table))
                    if number == 0 and len(part) > _SHOWN // 2
                    else (drawn, table)
                    if number == 0
                    else (fold(f"{len(part)} further histories", drawn, table),)
                )
    if still:
        told = "; ".join(
            f"{history.label or 'it'}: {show_quantity(metric, next(iter(history.members[0].values.values())))}"
            for history in still
        )
        yield (
            (f"The same in every measured release: {told}.")
            if len(told) < 400
            else fold("The same in every measured release", told)
        )


def _tabulate(history: _History, metric: str) -> tuple[str, str, str]:
    series = history.members[0]
    runs = "; ".join(
        f"{first if first == last else f'{first} to {last}'}: {show_quantity(metric, value)}"
        for first, last, value in join_runs(series)
    )
    return ", ".join(history.labels) or "all", show_quantity(metric, series.predicted), runs


def _name_all(series: Sequence[Series]) -> dict[int, str]:
    """Tell series of one metric apart by as few of their parameters as it takes: words in any case, numbers where needed."""
    parameters = [one.parameters for one in series]
    names = [name for name in parameters[0] if len({json.dumps(one.get(name)) for one in parameters}) > 1]
    for name in reversed(names):
        left = [other for other in names if other != name]
        numbers = all(isinstance(one.get(name), int) and not isinstance(one.get(name), bool) for one in parameters)
        if numbers and len({json.dumps([one.get(other) for other in left]) for one in parameters}) == len(parameters):
            names = left
    return {
        id(one): " · ".join(filter(None, (_name_parameter(name, one.parameters.get(name)) for name in names)))
        for one in series
    }


def _name_parameter(name: str, value: object) -> str:
    if isinstance(value, str):
        return "" if value == "none" and name != "mask" else value
    if value is None:
        return ""
    return f"{_words(name)} {show_parameter(value)}"


def _bands(series: Series, releases: Sequence[str], probe: Probe, metric: str) -> Iterator[Band]:
    healthy = min(series.values.values()) if series.predicted is None else series.predicted
    allowed = probe.module.tolerance(series.parameters) if metric == probe.module.METRIC else 0.02 * healthy
    above = max(series.values.values()) - healthy
    place = 0
    for first, last, value in join_runs(series):
        start, end = releases.index(first), releases.index(last)
        if start > place:
            yield Band(place, start - 1, "none", "not measured")
        text = show_quantity(metric, value)
        yield (
            Band(start, end, "good", text)
            if value <= healthy + allowed
            else Band(start, end, "bad", text, 0.3 + 0.55 * (value - healthy) / above)
        )
        place = end + 1
    if place < len(releases):
        yield Band(place, len(releases) - 1, "none", "not measured")
