"""The measured pairs of a rule's evidence in full, so that an installation without their files can measure them again."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import CompatcheckError
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.rules.load import load_rule
from compatcheck.rules.locate import CHECKOUT, is_checkout
from compatcheck.rules.measured import selects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.rules.database import CompiledRule, RuleSet
    from compatcheck.rules.rule import Comparison, EvidenceSelection, Rule

COMPILED = Path(__file__).with_name("_pairs.json")
"""Rule id → pairs of the built-in rules; an installation has no files of evidence, a checkout does without this one."""


def find_pairs(rule: CompiledRule, rules: RuleSet) -> Sequence[Mapping[str, Any]]:
    """Return the pairs of one rule: as they were compiled for an installation, else out of its file and its evidence."""
    if rule.database == 0 and not is_checkout():
        found: Sequence[Mapping[str, Any]] = _read_compiled().get(rule.id, ())
        return found
    directory = Path(rules.databases[rule.database].name if rule.database else CHECKOUT)
    loaded = load_rule(directory / f"{rule.id}.yaml", directory)
    return compile_pairs([loaded], directory.parent).get(rule.id, ())


@lru_cache(maxsize=1)
def _read_compiled() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(COMPILED.read_text(encoding="utf-8")) if COMPILED.exists() else {}
    return data


def compile_pairs(rules: Iterable[Rule], root: Path) -> dict[str, list[dict[str, Any]]]:
    """Return rule id → its evidence pairs, in the rule's order.

    A pair is ``{"probe", "backend", "metric", "suspect", "baseline", "facts"}``; a side is ``{"versions", "parameters"}``,
    of the baseline only what differs from the suspect side, and null where the metric is itself what is lost. What cannot
    be read is left out here: the linter says what is wrong with it.

    Args:
        rules: loaded rules.
        root: folder that ``evidence`` is relative to.
    """
    files: dict[str, tuple[Measurement, ...]] = {}
    found = {rule.id: [pair for each in rule.comparisons for pair in _pair(each, root, files)] for rule in rules}
    return {rule_id: pairs for rule_id, pairs in found.items() if pairs}


def _pair(comparison: Comparison, root: Path, files: dict[str, tuple[Measurement, ...]]) -> Iterator[dict[str, Any]]:
    if comparison.besides:  # the difference is not this rule's alone
        return
    suspect = _find(comparison.suspect, root, files)
    baseline = None if comparison.baseline is None else _find(comparison.baseline, root, files)
    metrics = {part.metric for part in (comparison.suspect, comparison.baseline) if part is not None} - {None}
    if suspect is None or (baseline is None) != (comparison.baseline is None) or metrics - {comparison.metric}:
        return
    if baseline is not None and (baseline.probe, baseline.backend) != (suspect.probe, suspect.backend):
        return
    yield {
        "probe": suspect.probe,
        "backend": suspect.backend,
        "metric": comparison.metric,
        "suspect": {"versions": dict(suspect.versions), "parameters": dict(suspect.parameters)},
        "baseline": baseline
        and {
            "versions": _changes(suspect.versions, baseline.versions),
            "parameters": _changes(suspect.parameters, baseline.parameters),
        },
        "facts": dict(comparison.facts),
    }


def _changes(one: Any, other: Any) -> dict[str, Any]:  # noqa: ANN401 (mappings of anything)
    return {name: value for name, value in other.items() if name not in one or one[name] != value}


def _find(selection: EvidenceSelection, root: Path, files: dict[str, tuple[Measurement, ...]]) -> Measurement | None:
    if selection.file not in files:
        try:
            files[selection.file] = read_measurements(str(root / selection.file))
        except CompatcheckError:
            files[selection.file] = ()
    found = [
        measurement
        for measurement in files[selection.file]
        if selects(selection, measurement.versions, measurement.parameters)
    ]
    return found[0] if len(found) == 1 and found[0].succeeded else None
