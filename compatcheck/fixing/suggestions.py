"""What would help a run: every single change and the plan, each judged whole, in the order of what they cost the person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.effects import EFFECTS, MORE_HARDWARE
from compatcheck.core.suggestions import Suggestion
from compatcheck.fixing.evaluation import target_of, targets_of
from compatcheck.fixing.plan import Group, Ways
from compatcheck.fixing.settings import find_smaller_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.fix import Change
    from compatcheck.fixing.evaluation import Verdicts
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_MOST = 8
"""How many are returned."""
_ORDER = ("fits", "marginal", "unknown", "does_not_fit")


def suggest(subject: Subject, rules: RuleSet, judge: Verdicts) -> tuple[Suggestion, ...]:
    """Rank changes after which a run needs less; a change that brings in something that fails is none.

    Returns:
        What makes it fit first, then what costs the person less, then what saves more.
    """
    verdict = judge(subject)
    estimate = verdict.estimate
    regressions = () if estimate is None else {one.rule_id for one in estimate.regressions}
    certain = (one for one in verdict.findings if one.status == "affected" and one.suppressed is None)
    about = [one for one in certain if one.fails or one.rule_id in regressions or one.is_about_fit]
    group = Group((subject,), about, rules, judge, Ways(None))
    limit = None if estimate is None else estimate.verdict.limit_bytes
    found = dict.fromkeys(filter(None, (_evaluate(group, changes, estimate) for changes in _options(group))))
    ranked: list[Suggestion] = []
    for one in sorted(found, key=lambda one: _rank(one, limit)):
        if not any(_is_same(one, other) for other in ranked):
            ranked.append(one)
    return tuple(ranked[:_MOST])


def _options(group: Group) -> Iterator[Sequence[Change]]:
    """Yield the plan, and each change by itself: of a package the nearest release that clears something."""
    if group.failing:
        yield group.search().state.changes
    for change in find_smaller_settings(group.subjects[0], group.rules, group.files):
        yield (change,)
    blamed = frozenset().union(*map(group.levers.blamed, group.failing))
    here = targets_of(group.failing)
    for lever in sorted(blamed & group.levers.packages.keys()):
        for change in group.levers.changes[lever]:
            if group.effect(change) is not None and not here <= targets_of(group.evaluation.findings((change,))):
                yield (change,)
                break


def _evaluate(group: Group, changes: Sequence[Change], before: Estimate | None) -> Suggestion | None:
    """Judge the run after some changes; None where they save nothing, do not fit together or bring in what fails."""
    if not changes or group.evaluation.disagree(changes) or group.evaluation.obstacle(changes) is not None:
        return None
    ((_, verdict),) = group.evaluation.judged(changes)
    if group.evaluation.unread(changes) is not None:
        return None
    if verdict.estimate is None or not verdict.estimate.phases:
        return None
    after = targets_of(verdict.findings)
    if targets_of(one for one in verdict.findings if one.fails) - group.evaluation.targets:
        return None
    saved = 0 if before is None else _peak(before, before) - _peak(verdict.estimate, before)
    clears = tuple(dict.fromkeys(one.rule_id for one in group.failing if target_of(one) not in after))
    if saved <= 0:
        return None
    complete = group.evaluation.complete(changes)
    fit = verdict.estimate.verdict
    return Suggestion(complete, verdict.estimate.needed, saved, fit.outcome, clears, fit.unless)


def _is_same(one: Suggestion, other: Suggestion) -> bool:
    """Tell whether two are one: a rule and the memory model propose one edit in other words, or one of them what goes with it."""
    if {change.edits or change for change in one.changes} == {change.edits or change for change in other.changes}:
        return True
    set_by_one, set_by_other = ({_stated(change) for change in suggestion.changes} for suggestion in (one, other))
    pairs = ((mine, theirs) for mine in set_by_one for theirs in set_by_other)
    return len(set_by_one) == len(set_by_other) == 1 and all(
        bool(m) and bool(t) and (m <= t or t <= m) for m, t in pairs
    )


def _stated(change: Change) -> frozenset[object]:
    """Return the facts that a change sets, each with its value and the model it is about."""
    return frozenset((name, value, change.role) for name, value in change.facts)


def _peak(estimate: Estimate, before: Estimate) -> int:
    """Return what a run is expected to need; at worst, where its verdict hangs on what is only possible."""
    return estimate.needed.high if before.possible else estimate.needed.expected


def _rank(suggestion: Suggestion, limit: int | None) -> tuple[int, ...]:
    number = len(suggestion.changes) if suggestion.outcome in {"fits", "marginal"} else 0
    over = limit is not None and suggestion.needed.expected > limit
    effect = EFFECTS.index(suggestion.effect)
    enough = number and not over and suggestion.effect == MORE_HARDWARE  # no more of it than it takes
    saved = suggestion.saved_bytes if enough else -suggestion.saved_bytes
    return _ORDER.index(suggestion.outcome), over, effect, number, saved
