"""Set what was measured on a rule's suspect side and on a healthy one beside the rule's own formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.lab.confirmation import Confirmation
from compatcheck.lab.pairs import find_fault
from compatcheck.lab.probes.metric_facts import metric_facts
from compatcheck.lab.proof import as_example, rule_sizes
from compatcheck.matching.examples import example_scope

if TYPE_CHECKING:
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.pairs import Trial
    from compatcheck.rules.database import CompiledRule, RuleSet

FACTOR = 0.05
"""How far a measured difference may lie outside the rule's range, as a share of it: probes round to blocks and buckets."""


def judge(
    rule: CompiledRule, trial: Trial, suspect: Measurement, baseline: Measurement | None, rules: RuleSet
) -> Confirmation:
    """Compare two measurements with the rule's formula.

    Runs that the rule is not about are not judged: they can neither confirm nor refute it.

    Args:
        rule: the rule.
        trial: what was measured.
        suspect: the suspect side.
        baseline: the healthy side; None where the trial has none.
        rules: tables and defaults that the formula is evaluated with.
    """
    value = suspect.metric(trial.metric)
    healthy = _healthy(trial, baseline)
    low, expected, high = predicted_sizes(rule, trial, suspect, rules)
    difference = None
    verdict = "inconclusive"
    if value is None or healthy is None:
        broken = suspect if value is None else baseline
        reason = _no_result(broken) if broken is not None else f"the probe predicts no {trial.metric}"
    else:
        difference = value - healthy
        sides = (suspect.versions, (baseline or suspect).versions)
        fault = find_fault(rule, rules.texts(rule), rules, trial, sides)
        if fault is not None:
            reason = fault
        else:
            verdict, reason = _verdict(difference, low, expected, high, tolerance(trial))
    return Confirmation(
        rule_id=rule.id,
        verdict=verdict,  # type: ignore[arg-type]
        reason=reason,
        probe=trial.probe.name,
        metric=trial.metric,
        suspect=suspect,
        baseline=baseline,
        measured_bytes=difference,
        predicted_bytes=expected,
        low_bytes=low,
        high_bytes=high,
    )


def _healthy(trial: Trial, baseline: Measurement | None) -> float | None:
    """Return what the metric is without the fault: measured, nothing where it is itself the loss, else as predicted."""
    if baseline is not None:
        return baseline.metric(trial.metric)
    return 0.0 if trial.loss else trial.probe.module.predict(trial.parameters).get(trial.metric)


def tolerance(trial: Trial) -> float:
    """Return the probe's tolerance, which is in the unit of its own metric; none for a metric of another unit."""
    own = trial.probe.module.METRIC
    return trial.probe.module.tolerance(trial.parameters) if _in_bytes(own) == _in_bytes(trial.metric) else 0.0


def _in_bytes(metric: str) -> bool:
    return metric.endswith("_bytes")


def predicted_sizes(
    rule: CompiledRule, trial: Trial, suspect: Measurement, rules: RuleSet
) -> tuple[float | None, float | None, float | None]:
    """Evaluate the rule's formula, and its low and high, with the facts of the measured run and those of the evidence.

    None where the metric is no number of bytes and no evidence says what the formula is of: of one logit, of one layer.
    """
    if not _in_bytes(trial.metric) and not trial.facts:
        return None, None, None
    facts = {**metric_facts(trial.probe, trial.parameters, trial.metric), **trial.facts}
    return rule_sizes(rule, example_scope(as_example(facts, suspect.versions), rules, "measurement"))


def _verdict(
    difference: float, low: float | None, expected: float | None, high: float | None, tolerance: float
) -> tuple[str, str]:
    if expected is None or low is None or high is None:
        if difference > tolerance:
            return "confirmed", "the suspect side holds more; the rule has no formula for this run to set beside it"
        return "refuted", "the suspect side holds no more than the healthy one"
    least, most = low * (1 - FACTOR), high * (1 + FACTOR)
    # A tolerance wider than a small effect must not hide one that lies exactly where it should.
    if 0 < least <= difference <= most or (
        difference > tolerance and least - tolerance <= difference <= most + tolerance
    ):
        return "confirmed", "the difference lies where the rule's formula puts it"
    if difference <= tolerance:
        return "refuted", "the suspect side holds no more than the healthy one"
    return "inconclusive", "the suspect side holds more, but not what the rule's formula says"


def _no_result(measurement: Measurement) -> str:
    releases = ", ".join(
        f"{name} {version}" for name, version in measurement.versions.items() if name not in {"python", "torch"}
    )
    return f"{releases or 'the environment'} gave no result: {measurement.status}: {measurement.reason or 'no reason'}"
