"""Measure a rule's suspect side and a healthy one, and set the difference beside the rule's own formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.version import Version

from compatcheck.core.confirmation import Confirmation
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.matching.decision import size
from compatcheck.matching.examples import example_scope
from compatcheck.matching.proof import as_example
from compatcheck.probes.probe import find_probe, probe_names
from compatcheck.resolution.scope import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.measurement import Measurement
    from compatcheck.probes.probe import Probe
    from compatcheck.rules.database import CompiledRule, RuleSet, Texts

FACTOR = 0.05
"""How far a measured difference may lie outside the rule's range, as a share of it: probes round to blocks and buckets."""


class Trial(NamedTuple):
    """What has to be measured to confirm a rule."""

    probe: Probe
    metric: str
    package: str
    """The package whose release differs; where a setting differs, the one the rule is about."""
    suspect: str
    """Release of the suspect side."""
    baseline: str | None
    """Release of the healthy side; None where none is known, then the probe's prediction stands in for it."""
    parameters: Mapping[str, Any]
    baseline_parameters: Mapping[str, Any]


def plan(
    rule: CompiledRule, texts: Texts, rules: RuleSet, suspect: str | None = None, baseline: str | None = None
) -> Trial | Confirmation:
    """Choose the releases and parameters that confirm a rule, or say why nothing here can.

    Args:
        rule: the rule.
        texts: its texts.
        rules: the database, for the known releases.
        suspect: a release to take as the suspect side.
        baseline: a release to take as the healthy side.
    """
    use = texts.probe
    if use is None or use["name"] not in probe_names():
        return Confirmation(rule_id=rule.id, verdict="inconclusive", reason=_without_probe(texts))
    probe = find_probe(use["name"])
    parameters = probe.complete(use["parameters"])
    differing = {**parameters, **(use.get("baseline") or {})}
    metric = use["metric"] or probe.module.METRIC
    for package in (*probe.module.PACKAGES, *_packages(rule)):
        bounds = [_bounds(clause.packages[package]) for clause in rule.clauses if package in clause.packages]
        releases = [release for release in rules.releases(package) if not Version(release).is_prerelease]
        if bounds and releases:
            break
    else:
        reason = f"no release of {', '.join(_packages(rule)) or 'any package'} can be installed here for it"
        return Confirmation(rule_id=rule.id, verdict="inconclusive", reason=reason, probe=probe.name)
    affected = [
        release for release in releases if any(contains(one, release) == "yes" for one in bounds if one is not None)
    ]
    bad = suspect or (affected[-1] if affected else None)
    if bad is None:
        return Confirmation(
            rule_id=rule.id,
            verdict="inconclusive",
            reason=f"no known release of {package} is affected",
            probe=probe.name,
        )
    good = baseline or (bad if use.get("baseline") is not None else _nearest_healthy(bad, releases, set(affected)))
    return Trial(probe, metric, package, bad, good, parameters, differing)


def _bounds(span: Any) -> Any:  # noqa: ANN401 (compiled bounds)
    """Return the bounds of a range; every release for a rule about a package that is there at all."""
    return compile_specifier(">=0") if span == "present" else None if span == ABSENT else span


def _packages(rule: CompiledRule) -> list[str]:
    return list(dict.fromkeys(name for clause in rule.clauses for name in clause.packages))


def _nearest_healthy(bad: str, releases: list[str], affected: set[str]) -> str | None:
    """Return the next release after it that is not affected, else the last one before it."""
    position = releases.index(bad) if bad in releases else len(releases)
    later = [release for release in releases[position + 1 :] if release not in affected]
    earlier = [release for release in releases[:position] if release not in affected]
    return later[0] if later else (earlier[-1] if earlier else None)


def _without_probe(texts: Texts) -> str:
    where = f"; it can be verified on {' or '.join(texts.verifiable)}" if texts.verifiable else ""
    return f"no probe measures this rule yet{where}. `compatcheck probe list` shows what can be measured"


def judge(
    rule: CompiledRule, trial: Trial, suspect: Measurement, baseline: Measurement | None, rules: RuleSet
) -> Confirmation:
    """Compare two measurements with the rule's formula.

    Args:
        rule: the rule.
        trial: what was measured.
        suspect: the suspect side.
        baseline: the healthy side; None where the probe's prediction stands in for it.
        rules: tables and defaults that the formula is evaluated with.
    """
    value = suspect.metric(trial.metric)
    healthy = (
        trial.probe.module.predict(trial.parameters).get(trial.metric)
        if baseline is None
        else baseline.metric(trial.metric)
    )
    low, expected, high = predicted_sizes(rule, trial, suspect, rules)
    if value is None or healthy is None:
        broken = suspect if value is None else baseline
        reason = _no_result(broken) if broken is not None else f"the probe predicts no {trial.metric}"
        verdict, difference = "inconclusive", None
    else:
        difference = value - healthy
        verdict, reason = _verdict(difference, low, expected, high, trial.probe.module.tolerance(trial.parameters))
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


def predicted_sizes(
    rule: CompiledRule, trial: Trial, suspect: Measurement, rules: RuleSet
) -> tuple[float | None, float | None, float | None]:
    """Evaluate the rule's formula, and its low and high, with the facts of the measured run."""
    facts = trial.probe.module.facts(trial.parameters)
    scope = example_scope(as_example(facts, suspect.versions), rules, "measurement")
    expected = size(rule.expected, scope)[0]
    low = size(rule.low, scope)[0] if rule.low is not None else expected
    high = size(rule.high, scope)[0] if rule.high is not None else expected
    return low, expected, high


def _verdict(
    difference: float, low: float | None, expected: float | None, high: float | None, tolerance: float
) -> tuple[str, str]:
    if expected is None or low is None or high is None:
        if difference > tolerance:
            return "confirmed", "the suspect side holds more; the rule has no formula for this run to set beside it"
        return "refuted", "the suspect side holds no more than the healthy one"
    if low * (1 - FACTOR) - tolerance <= difference <= high * (1 + FACTOR) + tolerance and difference > tolerance:
        return "confirmed", "the difference lies where the rule's formula puts it"
    if difference <= tolerance:
        return "refuted", "the suspect side holds no more than the healthy one"
    return "inconclusive", "the suspect side holds more, but not what the rule's formula says"


def _no_result(measurement: Measurement) -> str:
    releases = ", ".join(
        f"{name} {version}" for name, version in measurement.versions.items() if name not in {"python", "torch"}
    )
    return f"{releases or 'the environment'} gave no result: {measurement.status}: {measurement.reason or 'no reason'}"
