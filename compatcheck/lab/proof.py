"""What probes and measurements say about a rule, as the linter wants it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.rule_evidence import Proof
from compatcheck.matching.decision import SILENT, decide, size, truth
from compatcheck.matching.examples import example_scope
from compatcheck.rules.expression import evaluate
from compatcheck.rules.syntax import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from compatcheck.lab.measurement import Measurement
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import CompiledRule, RuleSet


def make_proof(rules: RuleSet) -> Proof:
    """Return what the linter's checks of evidence ask.

    Args:
        rules: tables and defaults that formulas are evaluated with.
    """
    names = frozenset(probe_names())

    def facts(measurement: Measurement) -> Mapping[str, Any]:
        return measured_facts(measurement) if measurement.probe in names else {}

    def sizes(
        formulas: Sequence[str], known: Mapping[str, Any], versions: Mapping[str, str]
    ) -> list[float | tuple[str, ...]]:
        scope = example_scope(as_example(known, versions), rules, "measurement")
        results: list[float | tuple[str, ...]] = []
        for formula in formulas:
            value, needs = size(parse(formula), scope)
            results.append(needs if value is None else float(value))
        return results

    def holds(condition: str, known: Mapping[str, Any], versions: Mapping[str, str]) -> bool | None:
        return truth(evaluate(parse(condition), example_scope(as_example(known, versions), rules, "measurement")))

    def others(rule_id: str, known: Mapping[str, Any], versions: Mapping[str, str]) -> tuple[float, float, float]:
        rule = rules.find(rule_id)
        if rule is None:
            raise UsageError(f"there is no rule {rule_id!r}")
        scope = example_scope(as_example(known, versions), rules, "measurement")
        if decide(rule, scope).status == SILENT:
            return 0, 0, 0
        least, expected, most = rule_sizes(rule, scope)
        if least is None or expected is None or most is None:
            raise UsageError(f"the size of {rule_id} needs more facts")
        return least, expected, most

    return Proof(
        names, lambda name, parameters: find_probe(name).complete(parameters), _read, facts, sizes, holds, others
    )


def measured_facts(measurement: Measurement) -> Mapping[str, Any]:
    """Return what a probe says about the run that was measured; empty where it cannot tell from an older text's parameters."""
    try:
        return find_probe(measurement.probe).module.facts(measurement.parameters)
    except (LookupError, TypeError, ValueError):
        return {}


def rule_sizes(rule: CompiledRule, scope: FactScope) -> tuple[float | None, float | None, float | None]:
    """Evaluate the rule's low, formula and high; None is one whose facts are missing."""
    sizes = scope.rules.texts(rule).sizes
    expected = size(sizes.expected, scope)[0]
    low = size(sizes.low, scope)[0] if sizes.low is not None else expected
    high = size(sizes.high, scope)[0] if sizes.high is not None else expected
    return low, expected, high


def as_example(facts: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """Write facts and releases in the layout of a rule's example."""
    example: dict[str, Any] = {"packages": {name: version for name, version in versions.items() if name != "python"}}
    for name, value in facts.items():
        section, _, key = name.partition(".")
        example.setdefault(section, {})[key] = value
    return example


def _read(path: Path) -> Sequence[Measurement]:
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:
        changed = 0
    return _read_once(str(path), changed)


@lru_cache(maxsize=256)
def _read_once(path: str, changed: int) -> tuple[Measurement, ...]:  # noqa: ARG001 (part of the key)
    return read_measurements(path)
