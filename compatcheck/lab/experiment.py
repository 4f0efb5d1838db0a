"""The experiment of a rule: cells on both sides of each of its conditions and boundaries.

One pair of measurements is of the run that a formula was made for; a rule that is wrong elsewhere passes it. So the rule's
expressions are read: each condition that the probe has a parameter for is tried on both sides, as are the settings that a probe
says may change its number (``VARIED``), in the releases around each boundary.
"""

from __future__ import annotations

import json
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from compatcheck.core.errors import CompatcheckError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import contains
from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.pairs import all_trials, nearest_healthy, trial_scope
from compatcheck.lab.probes.metric_facts import hides, metric_facts
from compatcheck.matching.decision import decide
from compatcheck.rules.expression import fact_names, literals, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.pairs import Trial
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.rules.database import CompiledClause, CompiledRule, RuleSet, Sizes
    from compatcheck.rules.expression import Code

MOST_LITERALS = 3
"""How many members of one set (``model.model_type in {…}``) are tried, beside those that the evidence names."""
MOST_ROWS = 48
"""How many sets of parameters one clause is tried with before only those remain that differ from its own in two at most."""


class Experiment(NamedTuple):
    """The cells of one rule."""

    cells: tuple[Trial, ...]
    """Each a trial: its suspect side is the cell, its baseline what the cell is compared with."""
    untried: tuple[str, ...]
    """Conditions that no parameter of the probe varies, as the rule writes them, and what else is left out; sorted."""


def design(rule: CompiledRule, rules: RuleSet) -> Experiment:
    """Derive the cells of a rule from its expressions and the trials of its evidence.

    Args:
        rule: the rule.
        rules: the database, for its texts and the known releases.
    """
    cells: dict[str, Trial] = {}
    untried: set[str] = set()
    groups: dict[str, list[Trial]] = {}
    for trial in all_trials(rule, rules.texts(rule), rules):
        groups.setdefault(_group_key(trial), []).append(trial)
    for trials in groups.values():
        for clause in rule.clauses:
            own = _own_trial(rule, clause, trials, rules)
            if own is None:
                continue
            axes, left = _axes(rule, clause, own, trials, rules.texts(rule).sizes)
            untried.update(left)
            releases = _releases(rule, clause, own, rules)
            for parameters in _rows(own, axes):
                if hides(own.probe, own.metric, _facts(own.probe, parameters, own.metric) or {}):
                    continue
                for release in releases:
                    cell = _cell(own, release, parameters)
                    if cell is not None:
                        cells.setdefault(cell_key(cell), cell)
    return Experiment(tuple(cells.values()), tuple(sorted(untried)))


def cell_key(trial: Trial) -> str:
    """Identify what is measured and what it is compared with."""
    parts = [trial.probe.name, trial.metric, trial.package, trial.suspect, trial.baseline]
    return json.dumps([*parts, trial.parameters, trial.baseline_parameters], sort_keys=True)


def sides(cell: Trial) -> list[tuple[str, Mapping[str, Any]]]:
    """Return release and parameters of what has to be measured for a cell."""
    suspect = (cell.suspect, cell.parameters)
    return [suspect] if cell.baseline is None else [suspect, (cell.baseline, cell.baseline_parameters)]


def side_key(cell: Trial, release: str, parameters: Mapping[str, Any]) -> str:
    """Identify a measurement that a cell asks for."""
    return json.dumps([cell.probe.name, cell.package, release, parameters], sort_keys=True)


def _group_key(trial: Trial) -> str:
    """Put together the trials that differ only in what the facts of the run say, or in their releases."""
    changed = {name: value for name, value in trial.baseline_parameters.items() if trial.parameters[name] != value}
    own = neutral_parameters(trial.probe, trial.parameters, trial.metric)
    by_release = trial.baseline is not None and trial.baseline != trial.suspect
    return json.dumps([trial.probe.name, trial.metric, trial.package, changed, own, by_release], sort_keys=True)


def neutral_parameters(probe: Probe, parameters: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the parameters of a closed set that no fact of the run shows: what part of it the metric is of."""
    known = _facts(probe, parameters, metric)
    return {
        name: parameters[name]
        for name, values in probe.choices.items()
        if all(_facts(probe, {**parameters, name: value}, metric) == known for value in values)
    }


def _facts(probe: Probe, parameters: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    try:
        probe.module.predict(parameters)
        return metric_facts(probe, parameters, metric)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _own_trial(rule: CompiledRule, clause: CompiledClause, trials: Sequence[Trial], rules: RuleSet) -> Trial | None:
    """Return the trial whose suspect side the clause is about; else the first one, beside the clause's own boundary."""
    for trial in trials:
        scope = trial_scope(
            trial, trial.parameters, {**trial.versions, trial.package: trial.suspect}, rules, trial.facts
        )
        if not isinstance(scope, str) and decide(rule, scope).clause == clause:
            return trial
    first = trials[0]
    if first.package not in clause.packages:
        return None
    releases = _known(first.package, rules)
    inside = set(_inside(clause.packages[first.package], releases))
    if not inside:
        return None
    suspect = max(inside, key=Version)
    if first.baseline is None or first.baseline == first.suspect:
        return first._replace(suspect=suspect, baseline=first.baseline and suspect)
    healthy = nearest_healthy(suspect, releases, inside)
    return None if healthy is None else first._replace(suspect=suspect, baseline=healthy)


def _known(package: str, rules: RuleSet) -> list[str]:
    return [release for release in rules.releases(package) if not Version(release).is_prerelease]


def _inside(bounds: Any, releases: Sequence[str]) -> list[str]:  # noqa: ANN401 (compiled bounds, or a word)
    if isinstance(bounds, str):
        return [] if bounds == "absent" else list(releases)
    return [release for release in releases if contains(bounds, release) == "yes"]


def _releases(rule: CompiledRule, clause: CompiledClause, own: Trial, rules: RuleSet) -> list[str]:
    """Return the releases around each boundary of a clause and of the rule's expressions, with those of the evidence."""
    known = _known(own.package, rules)
    if own.package == "torch":
        return [own.suspect]  # it is not laid over an interpreter
    bounds = [clause.packages.get(own.package, "absent")]
    bounds += [
        found
        for code in _expressions(rule, clause, rules.texts(rule).sizes)
        for name, found in ranges(code)
        if name == own.package
    ]
    chosen = {own.suspect, own.baseline} - {None}
    for each in bounds:
        inside = set(_inside(each, known))
        chosen.update(
            release for pair in pairwise(known) if (pair[0] in inside) != (pair[1] in inside) for release in pair
        )
    return sorted(chosen & set(known), key=Version)  # type: ignore[arg-type]


def _expressions(rule: CompiledRule, clause: CompiledClause, sizes: Sizes) -> list[Code]:
    parts = (clause.when, rule.when, rule.unless, sizes.expected, sizes.low, sizes.high)
    return [part for part in parts if part is not None]


def _axes(
    rule: CompiledRule, clause: CompiledClause, own: Trial, trials: Sequence[Trial], sizes: Sizes
) -> tuple[dict[str, list[Any]], set[str]]:
    """Return parameter → values, its own first, and what no parameter varies."""
    probe, parameters = own.probe, own.parameters
    known = _facts(probe, parameters, own.metric) or {}
    asked = {name for code in _expressions(rule, clause, sizes) for name in fact_names(code)}
    conditions = {
        name for code in (clause.when, rule.when, rule.unless) if code is not None for name in fact_names(code)
    }
    wanted: dict[str, list[Any]] = {}
    for code in (clause.when, rule.when, rule.unless, sizes.expected):
        for name, value in () if code is None else literals(code):
            wanted.setdefault(name, []).append(value)
    varied: Mapping[str, Sequence[Any]] = getattr(probe.module, "VARIED", {})
    apart = {name for name, value in own.baseline_parameters.items() if parameters[name] != value}
    neutral = neutral_parameters(probe, parameters, own.metric)
    axes: dict[str, list[Any]] = {}
    others = _facts(probe, own.baseline_parameters, own.metric) or {}
    reached = {fact for fact in {*others, *known} if others.get(fact) != known.get(fact)}
    left: set[str] = set()
    for name, default in probe.module.DEFAULTS.items():
        if name in apart or (name in neutral and name not in varied):
            continue
        closed = _some(probe.choices.get(name, ()), (default,)) or ((True, False) if isinstance(default, bool) else ())
        named, more = _named(probe, own, name, wanted, [trial.parameters[name] for trial in trials])
        if more:
            left.add(more)
        values = [parameters[name]]
        for value in [*named, *closed, *varied.get(name, ())]:
            if value in values or not _takes(probe, parameters, name, value):
                continue
            shown = _facts(probe, {**parameters, name: value}, own.metric)
            if shown is None:
                continue
            if hides(probe, own.metric, shown):
                left.add(f"{name}: {own.metric} does not show what is lost with {show_parameter(value)}")
                continue
            changed = {fact for fact in {*shown, *known} if shown.get(fact) != known.get(fact)}
            if not (changed & asked or name in varied):
                continue
            if own.metric.endswith("_bytes") and changed & set(own.facts):
                left.add(f"{name}: the evidence states {', '.join(sorted(changed & set(own.facts)))} itself")
                continue
            values.append(value)
            reached |= changed
        if len(values) > 1:
            axes[name] = values
    left.update(f"{name}: no parameter of {probe.name} varies it" for name in conditions - reached)
    return axes, left


def _named(
    probe: Probe, own: Trial, name: str, wanted: Mapping[str, Sequence[Any]], measured: Sequence[Any]
) -> tuple[list[Any], str | None]:
    """Return the values that the rule's expressions compare a parameter's fact with, and one beside each number."""
    values: list[Any] = []
    known = _facts(probe, own.parameters, own.metric) or {}
    for fact, literals_of in wanted.items():
        if known.get(fact) != own.parameters[name] or isinstance(known.get(fact), bool):
            continue
        for value in literals_of:
            if isinstance(value, str):
                values.append(value)
            elif type(value) is int and type(own.parameters[name]) is int:
                values += [value, value + 1, value - 1]
        values = [value for value in dict.fromkeys(values) if _shows(probe, own, name, value, fact)]
    chosen = _some(values, measured)
    rest = len(values) - len(chosen)
    return chosen, f"{name}: {rest} more values that the rule names" if rest else None


def _some(values: Sequence[Any], first: Iterable[Any]) -> list[Any]:
    """Return all of a few values; of many the first ones that are wanted, filled up with others from all over them."""
    if len(values) <= 2 * MOST_LITERALS:
        return list(values)
    chosen = [value for value in dict.fromkeys(first) if value in values][:MOST_LITERALS]
    step = max(1, len(values) // MOST_LITERALS)
    return chosen + [value for value in values[step - 1 :: step] if value not in chosen][: MOST_LITERALS - len(chosen)]


def _shows(probe: Probe, own: Trial, name: str, value: Any, fact: str) -> bool:  # noqa: ANN401 (a parameter)
    shown = _facts(probe, {**own.parameters, name: value}, own.metric)
    return shown is not None and shown.get(fact) == value


def _takes(probe: Probe, parameters: Mapping[str, Any], name: str, value: Any) -> bool:  # noqa: ANN401 (a parameter)
    try:
        probe.complete({**parameters, name: value})
    except CompatcheckError:
        return False
    return True


def _rows(own: Trial, axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    rows = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(rows) > MOST_ROWS:
        rows = [row for row in rows if sum(value != own.parameters[name] for name, value in row.items()) <= 2]
    for row in rows:
        yield {**own.parameters, **row}


def _cell(own: Trial, release: str, parameters: Mapping[str, Any]) -> Trial | None:
    changed = {name: value for name, value in own.baseline_parameters.items() if own.parameters[name] != value}
    baseline = own.baseline
    if baseline is not None and own.baseline == own.suspect:
        baseline = release
    others = {**parameters, **changed}
    # Where the metric is itself what is lost, a healthy release has nothing of it, but may need some with other parameters.
    loss = own.loss and own.probe.module.predict(own.parameters).get(own.metric) != 0
    return own._replace(
        suspect=release, baseline=baseline, parameters=parameters, baseline_parameters=others, loss=loss
    )
