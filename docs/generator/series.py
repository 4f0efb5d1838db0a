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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.rules.database import RuleSet, Texts
    from docs.generator.page import Page

INDEX = "releases/index.md"
_SHOWN = 10
"""Strips of one figure; further ones unfold."""
_NAMED = 6
"""Members of one history that a label names."""
_FEW = 3
"""Measured releases that a history has at least."""
_CODES = {"implementation": ("sdpa or flash", "eager")}
"""Metric that is a code → what its values stand for, as the probe says."""
_LONG = 400
"""Characters of a sentence above which it is folded."""


class _Swept(NamedTuple):
    """What one probe measured over the releases of a package."""

    probe: Probe
    package: str
    releases: tuple[str, ...]
    """All that the package has, oldest first."""
    metrics: Mapping[str, tuple[Series, ...]]
    """Quantity → its series, one for each set of parameters."""


class _History(NamedTuple):
    """Series of one metric that have the same values in the same releases."""

    series: Series
    """One of them."""
    labels: tuple[str, ...]
    """What each is of."""
    runs: tuple[tuple[str, str, float], ...]

    @property
    def label(self) -> str:
        """What they are of, shortened."""
        more = len(self.labels) - _NAMED
        return ", ".join(self.labels[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def join_runs(points: Iterable[tuple[str, float]]) -> Iterator[tuple[str, str, float]]:
    """Join neighbouring measured releases of one value: the first, the last and the value."""
    for value, group in groupby(points, key=lambda item: item[1]):
        versions = [version for version, _ in group]
        yield versions[0], versions[-1], value


def tell_quantity(metric: str, value: float | None) -> str:
    """Show a number of a metric, or what it stands for."""
    return _CODES[metric][int(value)] if metric in _CODES and value is not None else show_quantity(metric, value)


def run_text(run: tuple[str, str, float]) -> str:
    """Write the releases of a run."""
    first, last, _ = run
    return first if first == last else f"{first} to {last}"


def make_release_pages(rules: RuleSet, rule_path: Callable[[str], str]) -> Iterator[Page]:
    """Make a page for each package whose releases were swept, and their index.

    Args:
        rules: their releases and their rules.
        rule_path: tells the page of a rule.
    """
    swept: dict[str, list[_Swept]] = {}
    for one in _read_sweeps(rules):
        swept.setdefault(one.package, []).append(one)
    swept = dict(sorted(swept.items()))
    yield make_page(INDEX, _write_index(swept))
    for package, found in swept.items():
        yield make_page(package_path(package), _write_package(package, found, rules, rule_path))


def package_path(package: str) -> str:
    """Return the page of a swept package."""
    return f"releases/{package}.md"


def _read_sweeps(rules: RuleSet) -> Iterator[_Swept]:
    root = exported_evidence()
    assert root is not None  # noqa: S101 (the site is built in a checkout)
    for path in sorted(Path(root).glob("*/releases*.jsonl")):
        probe = find_probe(path.parent.name)
        package = probe.module.PACKAGES[0]
        releases = tuple(list_finals(rules.releases(package)))
        measured = [one for one in read_measurements(str(path)) if one.succeeded and one.versions[package] in releases]
        measured.sort(key=lambda one: releases.index(one.versions[package]))
        metrics: dict[str, tuple[Series, ...]] = {}
        for metric in _choose_metrics(measured, probe.module.METRIC):
            series = _collect_series(measured, probe, package, metric)
            # the headline is often another quantity, which a parameter chose
            if series and [one.values for one in series] not in [
                [one.values for one in found] for found in metrics.values()
            ]:
                metrics[metric] = series
        if metrics:
            yield _Swept(probe, package, releases, metrics)


def _choose_metrics(measured: Iterable[Measurement], headline: str) -> list[str]:
    """Return the quantities per logit, token, parameter or layer, the headline first; that alone where there are none."""
    per = {name: None for one in measured for name in one.results if "_per_" in name}
    return sorted(per, key=lambda name: name != headline) or [headline]


def _collect_series(measured: Iterable[Measurement], probe: Probe, package: str, metric: str) -> tuple[Series, ...]:
    """Put measurements, oldest release first, together by what else they differ in."""
    found: dict[str, list[Measurement]] = {}
    for one in measured:
        key = json.dumps([dict(one.parameters), one.backend, one.accounting], sort_keys=True)
        found.setdefault(key, []).append(one)
    return tuple(
        Series(
            probe=probe.name,
            parameters=alike[0].parameters,
            backend=alike[0].backend,
            metric=metric,
            predicted=probe.module.predict(alike[0].parameters).get(metric),
            values=values,
        )
        for alike in found.values()
        if len(
            values := {
                one.versions[package]: round(value, 3) for one in alike if (value := one.metric(metric)) is not None
            }
        )
        >= _FEW
    )


def _write_index(swept: Mapping[str, Sequence[_Swept]]) -> Iterator[str]:
    yield "# Memory across releases"
    yield (
        "What a package's own code holds per logit, token, parameter or layer, measured in its releases on a CPU,"
        " with tiny sizes and the dependencies of each release's day. No GPU is needed to see a release double what it"
        " keeps. The measurements are in `fixtures/measurements/`; `compatcheck sweep` makes them again."
    )
    rows = []
    for package, found in swept.items():
        all_series = [series for one in found for metric in one.metrics.values() for series in metric]
        measured = {release for series in all_series for release in series.values}
        known = [release for release in found[0].releases if release in measured]
        steps = {(change.series.probe, change.before, change.after) for change in find_changes(all_series)}
        rows.append(
            (
                link(package, INDEX, package_path(package)),
                f"{known[0]} to {known[-1]}",
                f"{len(steps)} by {len(found)} probes",
            )
        )
    yield write_table(("package", "releases", "steps found"), rows)
    yield "## Where numbers grew"
    yield (
        "Every step up, the oldest release first. One step may be of many model types or losses; the page of the package"
        " has them all."
    )
    for package, found in swept.items():
        if growth := _list_growth(package, found):
            yield f"### {package}"
            yield write_table(("releases", "quantity", "from → to"), growth)


def _list_growth(package: str, found: Sequence[_Swept]) -> list[tuple[str, ...]]:
    rows: list[tuple[tuple[int, int], tuple[str, ...]]] = []
    for one in found:
        probe = _words(one.probe.name)
        place = link(probe, INDEX, f"{package_path(package)}#{probe.replace(' ', '-')}")
        for metric, series in one.metrics.items():
            steps: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for change in find_changes(series):
                if change.difference > 0:
                    pair = change.series.values[change.before], change.series.values[change.after]
                    steps.setdefault((change.before, change.after), []).append(pair)
            for releases, pairs in steps.items():
                sizes = (_extent(metric, values) for values in zip(*pairs, strict=True))
                order = one.releases.index(releases[1]), one.releases.index(releases[0])
                row = " → ".join(releases).replace(" ", "\u00a0"), f"{place}: {_words(metric)}", " → ".join(sizes)
                rows.append((order, row))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


def _extent(metric: str, values: Sequence[float]) -> str:
    low, high = tell_quantity(metric, min(values)), tell_quantity(metric, max(values))
    return low if low == high else f"{low} … {high}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _write_package(
    package: str, found: Sequence[_Swept], rules: RuleSet, rule_path: Callable[[str], str]
) -> Iterator[str]:
    page = package_path(package)
    yield f"# {package} across releases"
    yield (
        "A line is one history, and each strip is one: blue is what a healthy release holds, and the deeper the red,"
        " the more above it; grey was not measured or gave no number. Between two measured releases with one value the"
        " others are taken to have it."
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
        for metric in one.metrics:
            yield f"### {_words(one.probe.name)}: {_words(metric)}"
            yield from _write_metric(one, metric)
        yield f"```sh\ncompatcheck sweep {one.probe.name} --package {package} --torch 2.13.0+cpu\n```"


def _is_about(texts: Texts, probe: str) -> bool:
    named = texts.probe is not None and texts.probe["name"] == probe
    return named or any(f"/{probe}/" in path for path in texts.evidence)


def _write_metric(one: _Swept, metric: str) -> Iterator[str]:
    histories = _group(one.metrics[metric])
    moving = [history for history in histories if len(history.runs) > 1]
    still = [history for history in histories if len(history.runs) == 1]
    if moving:
        shown = [*moving[:_SHOWN]]
        yield _draw_line(one, metric, max(moving, key=lambda history: len(history.labels) * len(history.runs)))
        yield _draw_histories(one, metric, shown, moving)
        table = _tabulate(one.package, metric, shown)
        yield fold("As a table", table) if len(shown) > _SHOWN // 2 else table
    if rest := moving[_SHOWN:]:
        yield fold(
            f"{len(rest)} further histories",
            _draw_histories(one, metric, rest, moving),
            _tabulate(one.package, metric, rest),
        )
    if still:
        told = "; ".join(
            f"{', '.join(filter(None, history.labels)) or one.package}: {tell_quantity(metric, history.runs[0][2])}"
            for history in still
        )
        yield (
            f"The same in every measured release: {told}."
            if len(told) < _LONG
            else fold("The same in every measured release", told)
        )


def _group(series: Sequence[Series]) -> list[_History]:
    """Put series of one history together, that of most of them first."""
    names = _name_all(series)
    groups: dict[str, list[tuple[Series, str]]] = {}
    for one, name in zip(series, names, strict=True):
        groups.setdefault(json.dumps([list(one.values.items()), one.predicted]), []).append((one, name))
    histories = [
        _History(found[0][0], tuple(name for _, name in found), tuple(join_runs(found[0][0].values.items())))
        for found in groups.values()
    ]
    return sorted(histories, key=lambda history: -len(history.labels))


def _draw_line(one: _Swept, metric: str, history: _History) -> str:
    """Draw one history as steps over all releases in which it is known."""
    points = [
        (release, value)
        for first, last, value in history.runs
        for release in one.releases[one.releases.index(first) : one.releases.index(last) + 1]
    ]
    title = ": ".join(filter(None, (f"{_words(metric)}, {one.package}", history.label)))
    return show_figure(draw_steps(f"{one.probe.name}-{metric}", title, points, partial(tell_quantity, metric)))


def _draw_histories(one: _Swept, metric: str, shown: Sequence[_History], moving: Sequence[_History]) -> str:
    """Draw histories as strips over the releases in which any is known."""
    places = [one.releases.index(release) for history in moving for release in history.series.values]
    releases = one.releases[min(places) : max(places) + 1]
    strips = [
        Strip(history.label or one.package, tuple(_list_bands(history, releases, one.probe))) for history in shown
    ]
    name = f"{one.probe.name}-{metric}-{moving.index(shown[0])}"
    return show_figure(draw_strips(name, f"{_words(metric)}, {one.package}: each history", releases, strips))


def _list_bands(history: _History, releases: Sequence[str], probe: Probe) -> Iterator[Band]:
    series = history.series
    values = series.values.values()
    healthy = min(values) if series.predicted is None else series.predicted
    allowed = probe.module.tolerance(series.parameters) if series.metric == probe.module.METRIC else 0.02 * healthy
    place = 0
    for first, last, value in history.runs:
        start, end = releases.index(first), releases.index(last)
        if start > place:
            yield Band(place, start - 1, "none", "not measured")
        text = tell_quantity(series.metric, value)
        if value <= healthy + allowed:
            yield Band(start, end, "good", text)
        else:
            yield Band(start, end, "bad", text, 0.3 + 0.55 * (value - healthy) / (max(values) - healthy))
        place = end + 1
    if place < len(releases):
        yield Band(place, len(releases) - 1, "none", "not measured")


def _tabulate(package: str, metric: str, histories: Sequence[_History]) -> str:
    rows = [
        (
            ", ".join(filter(None, history.labels)) or "all",
            tell_quantity(metric, history.series.predicted),
            "; ".join(f"{run_text(run)}: {tell_quantity(metric, run[2])}" for run in history.runs),
        )
        for history in histories
    ]
    return write_table((package, "healthy:", "measured"), rows)


def _name_all(series: Sequence[Series]) -> list[str]:
    """Tell series of one metric apart by as few of their parameters as it takes: words in any case, numbers where needed."""
    parameters = [one.parameters for one in series]
    names = [name for name in parameters[0] if len({json.dumps(one.get(name)) for one in parameters}) > 1]
    for name in reversed(names):
        left = [other for other in names if other != name]
        numbers = all(isinstance(one.get(name), int) and not isinstance(one.get(name), bool) for one in parameters)
        if numbers and len({json.dumps([one.get(other) for other in left]) for one in parameters}) == len(parameters):
            names = left
    for words in (_name_parameter, _name_every_parameter):
        labels = [" · ".join(filter(None, (words(name, one.get(name)) for name in names))) for one in parameters]
        if len({*labels} - {""}) == len(labels):
            return labels
    return labels


def _name_every_parameter(name: str, value: object) -> str:
    return f"{_words(name)} none" if value == "none" else _name_parameter(name, value)


def _name_parameter(name: str, value: object) -> str:
    if isinstance(value, str):
        return "" if value == "none" else value
    return "" if value is None else f"{_words(name)} {show_parameter(value)}"
