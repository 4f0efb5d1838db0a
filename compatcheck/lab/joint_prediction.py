"""What all rules whose evidence is of one probe together predict of a cell: a rule that is silent claims that nothing is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.confirm import FACTOR, tolerance
from compatcheck.lab.experiment import neutral_parameters, side_key, sides
from compatcheck.lab.pairs import all_trials, packages_of, trial_scope
from compatcheck.lab.proof import rule_sizes
from compatcheck.lab.rule_evidence import TOLERANCE
from compatcheck.matching.decision import AFFECTED, POSSIBLE, SILENT, decide

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from compatcheck.lab.experiment import Experiment
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.pairs import Trial
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import CompiledRule, RuleSet


class Outcome(NamedTuple):
    """What a measured cell says about the rule."""

    verdict: str
    """``predicted``; ``wrong``; ``undecided``: the rule says that it may be about the cell; ``explained``: what more is lost is
    another rule's, whose evidence is of another probe; or ``unmeasured``."""
    status: str
    """What the rule says: affected, possible or silent."""
    measured: float | None
    """The metric in the cell less that of its baseline."""
    low: float | None
    high: float | None
    """Between what the rules together predict; None is no bound."""
    reason: str | None = None
    """Why it was not measured, or the rule that explains it."""


class ExperimentResult(NamedTuple):
    """The experiment of a rule, each cell with what it says."""

    rule_id: str
    outcomes: tuple[tuple[Trial, Outcome], ...]
    untried: tuple[str, ...]
    """As in `Experiment`."""


class JointPrediction:
    """The rules whose evidence is of the same probe: together they predict what a cell holds."""

    def __init__(self, rules: RuleSet) -> None:
        """Collect the trials of all active rules."""
        self._rules = rules
        self._scopes: dict[str, FactScope | str] = {}
        self._members: dict[str, dict[str, tuple[CompiledRule, list[tuple[Mapping[str, Any], Trial]]]]] = {}
        for rule in rules.all_rules():
            for trial in all_trials(rule, rules.texts(rule), rules) if rule.status == "active" else ():
                members = self._members.setdefault(f"{trial.probe.name} {trial.metric}", {})
                own = neutral_parameters(trial.probe, trial.parameters, trial.metric)
                members.setdefault(rule.id, (rule, []))[1].append((own, trial))

    def judge(
        self, rule: CompiledRule, cell: Trial, found: Measurement | None, baseline: Measurement | None
    ) -> Outcome:
        """Compare a measured cell with what the rules together predict of it."""
        if found is None:
            return Outcome("unmeasured", "", None, None, None, "not measured yet")
        value = found.metric(cell.metric) if found.succeeded else None
        if value is None:
            return Outcome("unmeasured", "", None, None, None, f"{found.status}: {found.reason}")
        if cell.baseline is not None:
            healthy = baseline.metric(cell.metric) if baseline is not None and baseline.succeeded else None
        else:
            healthy = 0.0 if cell.loss else cell.probe.module.predict(cell.parameters).get(cell.metric)
        if healthy is None:
            reason = "no baseline" if baseline is None else f"no baseline: {baseline.status}: {baseline.reason}"
            return Outcome("unmeasured", "", None, None, None, reason)
        elsewhere = getattr(cell.probe.module, "on_a_gpu", lambda _: None)(found.versions)
        if elsewhere is not None and found.backend != "cuda":
            return Outcome("unmeasured", "", None, None, None, f"needs a GPU: {elsewhere}")
        status, low, high = self._predict(rule, cell, cell.parameters, found)
        if baseline is not None:
            _, under, over = self._predict(rule, cell, cell.baseline_parameters, baseline)
            low = low - over if over is not None else None  # type: ignore[operator]
            high = high - under if high is not None else None  # type: ignore[operator]
        measured = value - healthy
        slack = tolerance(cell) + TOLERANCE * abs(healthy)
        # A run that holds less than promised refutes a rule that says how much is lost, not one that says nothing is.
        fits = (low is None or status != AFFECTED or measured >= low - FACTOR * abs(low) - slack) and (
            high is None or measured <= high + FACTOR * abs(high) + slack
        )
        if not fits and high is not None and measured > high:
            other = self._find_other(cell, found, measured - slack - high)
            if other is not None:
                return Outcome("explained", status, measured, low, high, other)
        verdict = "wrong" if not fits else "undecided" if status == POSSIBLE else "predicted"
        return Outcome(verdict, status, measured, low, high)

    def _find_other(self, cell: Trial, found: Measurement, least: float) -> str | None:
        """Name a rule of other evidence that speaks about the cell and says that as much may be lost."""
        family = self._members.get(f"{cell.probe.name} {cell.metric}", {})
        for rule in self._rules.rules_about(found.versions):
            about = not cell.probe.module.PACKAGES or set(cell.probe.module.PACKAGES) & set(packages_of(rule))
            if about and rule.id not in family and self._rules.texts(rule).sizes.expected is not None:
                status, _, most = self._claim(rule, cell, found)
                if status == AFFECTED if most is None else most >= least:
                    return rule.id
        return None

    def _predict(
        self, rule: CompiledRule, cell: Trial, parameters: Mapping[str, Any], found: Measurement
    ) -> tuple[str, float | None, float | None]:
        """Return what the rule says and between what all rules together put the loss."""
        own, low, high = SILENT, 0.0, 0.0
        alike = neutral_parameters(cell.probe, cell.parameters, cell.metric)  # of the same part of the run
        unbounded = False
        for member, trials in self._members.get(f"{cell.probe.name} {cell.metric}", {}).values():
            trial = next((trial for neutral, trial in trials if neutral == alike), None)
            if trial is None:
                continue
            status, least, most = self._claim(member, trial._replace(parameters=parameters), found)
            if member.id == rule.id:
                own = status
            low += least
            high += most or 0.0
            unbounded = unbounded or most is None
        return own, low, None if unbounded else high

    def _claim(self, rule: CompiledRule, trial: Trial, found: Measurement) -> tuple[str, float, float | None]:
        # Facts of the evidence may describe the run or only the unit of its metric, so either may decide.
        scopes = [self._scope(trial, found, facts) for facts in ({}, trial.facts)]
        decided = {decide(rule, scope).status for scope in scopes if not isinstance(scope, str)}
        status = next((each for each in (AFFECTED, SILENT) if each in decided), POSSIBLE if decided else SILENT)
        if status == SILENT:
            return status, 0.0, 0.0
        within = scopes[-1]
        if isinstance(within, str) or not (trial.facts or trial.metric.endswith("_bytes")):
            return status, 0.0, None
        least, _, most = rule_sizes(rule, within)
        return status, (least or 0.0) if status == AFFECTED else 0.0, most

    def _scope(self, trial: Trial, found: Measurement, facts: Mapping[str, Any]) -> FactScope | str:
        """Resolve a run once: all rules ask about it, and as a baseline it stands beside many cells."""
        run = [trial.probe.name, trial.metric, trial.parameters, found.versions, facts]
        key = json.dumps(run, sort_keys=True, default=dict)
        if key not in self._scopes:
            self._scopes[key] = trial_scope(trial, trial.parameters, found.versions, self._rules, facts)
        return self._scopes[key]


def judge_cells(
    rule: CompiledRule, experiment: Experiment, found: Mapping[str, Measurement], prediction: JointPrediction
) -> ExperimentResult:
    """Judge every cell of an experiment.

    Args:
        rule: the rule.
        experiment: of that rule.
        found: `side_key` → measurement.
        prediction: of all rules.
    """
    outcomes = []
    for cell in experiment.cells:
        measured = [found.get(side_key(cell, *side)) for side in sides(cell)]
        baseline = measured[1] if len(measured) > 1 else None
        outcomes.append((cell, prediction.judge(rule, cell, measured[0], baseline)))
    return ExperimentResult(rule.id, tuple(outcomes), experiment.untried)
