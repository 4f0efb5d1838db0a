"""Checks of a rule's probe and evidence: the probe exists, files can be read, and measured bytes lie in the rule's range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import CompatcheckError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.rules.measured import selects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from compatcheck.lab.measurement import Measurement
    from compatcheck.rules.rule import Comparison, EvidenceSelection, Rule

TOLERANCE = 0.02
"""How far measured bytes may be from ``bytes`` whatever ``low`` and ``high`` are: there are small tensors beside the
large ones. A report shows one number for a range as narrow as this."""


class Proof(NamedTuple):
    """What the checks ask of probes and measurements."""

    probes: frozenset[str]
    """Names of the catalogue."""
    complete: Callable[[str, Mapping[str, Any]], object]
    """Takes a probe and its parameters; raises CompatcheckError when it has no such parameter."""
    read: Callable[[Path], Sequence[Measurement]]
    """Reads a file of measurements; raises CompatcheckError."""
    facts: Callable[[Measurement], Mapping[str, Any]]
    """Vocabulary name → value of a measured run, as its probe says; empty for a probe that is not in the catalogue."""
    sizes: Callable[[Sequence[str], Mapping[str, Any], Mapping[str, str]], Sequence[float | tuple[str, ...]]]
    """Evaluates formulas over facts and releases: bytes, or the facts that are missing; raises CompatcheckError."""
    holds: Callable[[str, Mapping[str, Any], Mapping[str, str]], bool | None]
    """Decides a condition over facts and releases; None where facts are missing; raises CompatcheckError."""
    others: Callable[[str, Mapping[str, Any], Mapping[str, str]], tuple[float, float, float]]
    """Returns least, size and most that another rule says of a run, zeros where it is silent; raises CompatcheckError."""


def check_evidence(rule: Rule, root: Path, proof: Proof) -> Iterator[tuple[str, str]]:
    """Yield key and message of what is wrong with a rule; ``root`` is the folder that ``evidence`` is relative to."""
    if rule.probe is not None:
        yield from _check_probe(rule, proof)
    files: dict[str, Sequence[Measurement]] = {}
    for name in rule.evidence:
        try:
            files[name] = proof.read(root / name)
        except CompatcheckError as error:
            yield "evidence", f"{name} cannot be read: {error.message}"
    for comparison in rule.comparisons:
        if all(part.file in files for part in (comparison.suspect, comparison.baseline) if part is not None):
            for message in _check_comparison(rule, comparison, files, proof):
                yield "evidence", message


def _check_probe(rule: Rule, proof: Proof) -> Iterator[tuple[str, str]]:
    assert rule.probe is not None  # noqa: S101 (asked by the caller)
    if rule.probe.name not in proof.probes:
        yield "probe", f"there is no probe {rule.probe.name!r}; `compatcheck probe list` has them all"
        return
    try:
        proof.complete(rule.probe.name, {**rule.probe.parameters, **(rule.probe.baseline or {})})
    except CompatcheckError as error:
        yield "probe", error.message + (f" ({error.hint})" if error.hint else "")


def _check_comparison(
    rule: Rule, comparison: Comparison, files: Mapping[str, Sequence[Measurement]], proof: Proof
) -> Iterator[str]:
    values, sides = [], []
    for part in (comparison.suspect, comparison.baseline):
        if part is None:
            continue
        found = [
            measurement
            for measurement in files[part.file]
            if selects(part, measurement.versions, measurement.parameters)
        ]
        if len(found) != 1:
            yield f"{_describe(part)} selects {len(found)} measurements; name one by versions and parameters"
            return
        metric = part.metric or comparison.metric
        value = found[0].metric(metric)
        if value is None or not found[0].succeeded:
            yield f"{_describe(part)} has no {metric}"
            return
        values.append(value)
        sides.append(found[0])
    suspect = sides[0]
    named = {name for clause in rule.clauses for name, specifier in clause.packages.items() if specifier != "absent"}
    if named and named.isdisjoint(suspect.versions):
        yield f"{_describe(comparison.suspect)} was measured without {' and '.join(sorted(named))}, which `affected` is about"
    elif not any(_affects(clause.packages, suspect.versions) for clause in rule.clauses):
        releases = ", ".join(f"{name} {version}" for name, version in suspect.versions.items() if name != "python")
        yield f"{_describe(comparison.suspect)} was measured with {releases}, which `affected` leaves out"
    yield from _check_range(rule, comparison, values[0] - sum(values[1:]), sides, proof)


def _check_range(
    rule: Rule, comparison: Comparison, measured: float, sides: Sequence[Measurement], proof: Proof
) -> Iterator[str]:
    impact, suspect = rule.impact, sides[0]
    formulas = [text for text in (impact.expected, impact.low, impact.high) if text]
    if not formulas:
        if measured <= 0:
            yield f"{_difference(comparison)} is {measured:,.0f} bytes: nothing is lost"
        return
    # At the same releases it is a setting that keeps the baseline healthy, whether a fact tells it or not.
    named = {name for clause in rule.clauses for name in clause.packages}
    alike = all(
        side.versions[name] == suspect.versions[name]
        for side in sides
        for name in named & {*side.versions} & {*suspect.versions}
    )
    claims: list[tuple[float, float, float]] = []
    parts = [part for part in (comparison.suspect, comparison.baseline) if part is not None]
    for part, side in zip(parts, sides, strict=True):
        facts = {**proof.facts(side), **comparison.facts}
        try:
            if claims and (alike or not _is_affected(rule, facts, side.versions, proof)):
                continue
            sizes = proof.sizes(formulas, facts, side.versions)
        except CompatcheckError as error:
            yield f"the size of {_describe(part)} cannot be computed: {error}"
            return
        missing = sorted({name for size in sizes if isinstance(size, tuple) for name in size})
        if missing:
            yield f"{_describe(part)}: the size needs {', '.join(missing)}; state them under `facts`"
            return
        claims.append(
            _claim(rule, dict(zip(formulas, (size for size in sizes if not isinstance(size, tuple)), strict=True)))
        )
    low, expected, high = claims[0]
    # A baseline that the rule is about, too, holds what it says of it: at a release where the size changes.
    for least, other, most in claims[1:]:
        low, expected, high = low - most, expected - other, high - least
    for rule_id in comparison.besides:
        for place, side in enumerate(sides):
            try:
                least, other, most = proof.others(rule_id, {**proof.facts(side), **comparison.facts}, side.versions)
            except CompatcheckError as error:
                yield f"besides: {error}"
                return
            least, most = min(least, (1 - TOLERANCE) * other), max(most, (1 + TOLERANCE) * other)
            if place:
                least, other, most = -most, -other, -least
            low, expected, high = low + least, expected + other, high + most
    if not low <= measured <= high:
        yield (
            f"{_difference(comparison)} is {measured:,.0f} bytes; the rule says {expected:,.0f} ({low:,.0f} to {high:,.0f})"
        )


def _claim(rule: Rule, known: Mapping[str, float]) -> tuple[float, float, float]:
    """Return the least, the size and the most that a rule says, of its evaluated formulas."""
    impact = rule.impact
    # Without an expected size the bounds that the rule has are all that it says.
    expected = known[impact.expected or impact.high or impact.low or ""]
    low = known[impact.low] if impact.low else expected if impact.expected else 1
    high = known[impact.high] if impact.high else expected if impact.expected else math.inf
    if impact.expected:
        low, high = min(low, (1 - TOLERANCE) * expected), max(high, (1 + TOLERANCE) * expected)
    return low, expected, high


def _is_affected(rule: Rule, facts: Mapping[str, Any], versions: Mapping[str, str], proof: Proof) -> bool:
    """Tell whether a rule is about the healthy side of its own evidence, and nothing that is known leaves it out."""
    if rule.when and proof.holds(rule.when, facts, versions) is False:
        return False
    if rule.unless and proof.holds(rule.unless, facts, versions):
        return False
    return any(
        set(clause.packages) <= set(versions)
        and _affects(clause.packages, versions)
        and (clause.when is None or proof.holds(clause.when, facts, versions) is not False)
        for clause in rule.clauses
    )


def _difference(comparison: Comparison) -> str:
    against = "" if comparison.baseline is None else f" less {_describe(comparison.baseline)}"
    return f"{comparison.metric} of {_describe(comparison.suspect)}{against}"


def _describe(selection: EvidenceSelection) -> str:
    chosen = [f"{name} {version}" for name, version in selection.versions.items()]
    chosen += [f"{name}={value}" for name, value in selection.parameters.items()]
    name = selection.file.rpartition("/")[2]
    return f"{name} ({', '.join(chosen)})" if chosen else name


def _affects(packages: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    """Tell whether no measured release lies outside a clause."""
    return all(
        specifier == "present"
        or (specifier != "absent" and contains(compile_specifier(specifier), versions[name]) != "no")
        for name, specifier in packages.items()
        if name in versions
    )
