"""What nobody states of a run, supposed at its worst: a run that does not fit with it may not fit."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.summary import range_text, value_text
from compatcheck.memory.regressions import counts_apart, is_worse, widen
from compatcheck.rules.values import list_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

    Find = Callable[[Subject], Sequence[Finding]]
    Excludes = Callable[[Subject, Finding, Mapping[str, Value]], bool]
    Price = Callable[[Subject, Sequence[Finding]], Estimate]
    State = Callable[[Subject, Mapping[str, Value]], Subject]

_SETTINGS = ("training.", "model.", "rollout.")
"""What the names of facts begin with that a run's own files state, as opposed to machine, builds and what its code does."""


class Means(NamedTuple):
    """How a run with more stated is judged."""

    state: State
    """Gives a run with more stated."""
    excludes: Excludes
    """Tells that a run with more stated has no such finding, before all that follows from the statement is known."""
    find: Find
    """Gives the findings on a variant of a run."""
    price: Price
    """Gives what a variant needs with its findings; asked only where the finding is certain."""


_MOST = 64
"""Combinations of values that are tried for one finding."""
_COMES = " (comes with "


def suppose_worst(subject: Subject, findings: Sequence[Finding], estimate: Estimate, means: Means) -> Estimate:
    """Leave open whether a run fits that would not where a possible finding about it were certain.

    Each is made certain by stating what it waits for, in the way that lets the run need most, and the whole run is judged
    with that: what is announced is what the statement gives.

    Args:
        subject: the run.
        findings: about it; those count that wait for settings, or packages of extras that are not selected, alone.
        estimate: what it needs as it is described; one that does not fit cannot get worse.
        means: how it is judged with more stated.
    """
    waiting = sorted((one for one in findings if _waits(one)), key=_size, reverse=True)
    found = estimate
    stated: tuple[str, ...] = ()
    for finding in waiting:
        worst = None
        for words, variant in _suppose(finding, subject, means):
            certain, sure = means.find(variant), (finding.rule_id, finding.role, "affected")
            if not any((one.rule_id, one.role, one.status) == sure for one in certain):
                continue
            try:
                priced = means.price(variant, certain)
            except UsageError:
                continue  # no such run
            if priced.phases and (worst is None or priced.needed.high > worst[0].needed.high):
                worst = priced, words, variant
        if worst is None or worst[0].needed.high <= found.needed.high:
            continue
        found, subject = worst[0], worst[2]
        stated = (*stated, *worst[1])
        if found.verdict.outcome == "does_not_fit":
            break
    known = {(one.rule_id, one.role) for one in estimate.regressions}
    new = tuple(one for one in found.regressions if (one.rule_id, one.role) not in known)
    if not new or not is_worse(found, estimate) or not is_worse(found, found.without):
        return estimate
    names = " and ".join(dict.fromkeys(one.rule_id for one in new))
    return widen(estimate, new, f"{range_text(found.needed)} with {names}, if {' and '.join(dict.fromkeys(stated))}")


def _waits(finding: Finding) -> bool:
    """Tell whether settings of the run, or unselected extras, alone keep something from being certain that takes memory."""
    if finding.status != "possible" or finding.suppressed is not None or finding.folded or not counts_apart(finding):
        return False
    if finding.impact is None or finding.impact.formula is None:  # no statement gives it a size
        return False
    return all(list_values(need) if need.startswith(_SETTINGS) else _COMES in need for need in finding.needs)


def _size(finding: Finding) -> float:
    """Return the most that a finding can cost; what nobody can tell may be anything."""
    size = None if finding.impact is None else finding.impact.high_bytes
    return float("inf") if size is None else size


def _suppose(finding: Finding, subject: Subject, means: Means) -> Iterator[tuple[tuple[str, ...], Subject]]:
    """Yield the ways in which everything is stated that a finding waits for, in words and as a variant of the run."""
    extras = [need for need in finding.needs if _COMES in need]
    names = [need for need in finding.needs if _COMES not in need]
    if extras and subject.environment is not None:
        packages = dict(subject.environment.packages)
        for name in (need.partition(_COMES)[0] for need in extras):
            packages[name] = packages[name]._replace(is_optional=False, brought_by=())
        subject = subject._replace(environment=subject.environment._replace(packages=packages))
    brought = tuple(need.replace(_COMES, " comes with ").removesuffix(")") for need in extras)
    ways = list(product(*map(list_values, names)))
    for values in ways[:_MOST]:
        facts: dict[str, Value] = dict(zip(names, values, strict=True))
        if not means.excludes(subject, finding, facts):
            words = (*brought, *(f"{name} is {value_text(value)}" for name, value in facts.items()))
            yield words, means.state(subject, facts)
