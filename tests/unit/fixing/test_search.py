"""The search finds what trying everything finds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.fixing.search import Choice, Score, key_of, search

NAMES = ("a", "b", "c", "d")
VALUES = 4


class Finding(NamedTuple):
    """A made-up finding: it fails where one of its alternatives holds; an alternative is a set of values for each of its axes."""

    alternatives: tuple[tuple[tuple[str, frozenset[int]], ...], ...]
    target: bool

    def fails(self, versions: Mapping[str, int]) -> bool:
        return any(all(versions[name] in bad for name, bad in parts) for parts in self.alternatives)


class MadeUp:
    """A problem whose bound is exact and whose resolver refuses what it is told to."""

    def __init__(self, findings: Sequence[Finding], refused: Sequence[Mapping[str, int]]) -> None:
        start = dict.fromkeys(NAMES, 0)
        self.findings = [one for one in findings if one.fails(start) == one.target]
        self.refused = refused

    def versions(self, choices: Sequence[Choice]) -> dict[str, int]:
        return {**dict.fromkeys(NAMES, 0), **{choice.axis: int(choice.value) for choice in choices}}

    def score(self, choices: Sequence[Choice]) -> Score:
        versions = self.versions(choices)
        remaining = sum(one.target and one.fails(versions) for one in self.findings)
        return Score(remaining, not any(not one.target and one.fails(versions) for one in self.findings))

    def bound(self, axes: Sequence[str]) -> int:
        everything = [
            {**dict.fromkeys(NAMES, 0), **dict(zip(axes, values, strict=True))}
            for values in itertools.product(range(VALUES), repeat=len(axes))
        ]
        return sum(one.target and all(one.fails(versions) for versions in everything) for one in self.findings)

    def lowest(self) -> int:
        return self.bound(NAMES)

    def is_spent(self) -> bool:
        return False

    def resolves(self, choices: Sequence[Choice]) -> bool:
        versions = self.versions(choices)
        return not any(all(versions[name] == value for name, value in part.items()) for part in self.refused)

    def core(self, axes: Sequence[str], limit: int) -> frozenset[str] | None:
        del limit
        for part in self.refused:
            if not set(part) & set(axes) and all(value == 0 for value in part.values()):
                return frozenset(part)
        return None

    def accept(self, choices: Sequence[Choice], limit: int) -> bool:
        del limit
        return self.resolves(choices)


def axes_of(costs: Sequence[int], unsafe: set[tuple[str, int]]) -> dict[str, list[Choice]]:
    return {
        name: [
            Choice(name, str(value), (costs[place * VALUES + value],), value, (name, value) not in unsafe)
            for value in range(1, VALUES)
        ]
        for place, name in enumerate(NAMES)
    }


def try_everything(problem: MadeUp, axes: Mapping[str, Sequence[Choice]], most: int) -> tuple[int, int, int, object]:
    best = (problem.score(()).remaining, 0, 0, ())
    for size in range(1, most + 1):
        for names in itertools.combinations(sorted(axes), size):
            for choices in itertools.product(*(axes[name] for name in names)):
                score = problem.score(choices)
                if score.allowed and problem.resolves(choices):
                    remaining, unsafe, costs, _ = key_of(score.remaining, choices)
                    best = min(best, (remaining, unsafe, size, costs))
    return best


PARTS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.frozensets(st.integers(0, VALUES - 1), min_size=1)),
    min_size=1,
    max_size=2,
    unique_by=lambda part: part[0],
).map(tuple)
FINDINGS = st.builds(Finding, st.lists(PARTS, min_size=1, max_size=2).map(tuple), st.booleans())
REFUSED = st.dictionaries(st.sampled_from(NAMES), st.integers(0, VALUES - 1), min_size=1, max_size=2)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(FINDINGS, min_size=1, max_size=5),
    st.lists(REFUSED, max_size=3),
    st.lists(st.integers(0, 5), min_size=16, max_size=16),
    st.sets(st.tuples(st.sampled_from(NAMES), st.integers(1, VALUES - 1)), max_size=6),
)
def test_it_finds_what_trying_everything_finds(
    findings: list[Finding], refused: list[dict[str, int]], costs: list[int], unsafe: set[tuple[str, int]]
) -> None:
    problem, axes = MadeUp(findings, refused), axes_of(costs, unsafe)
    best = search(problem, axes, most_changes=3)
    _, _, found, _ = key_of(best.remaining, best.choices)
    expected = try_everything(problem, axes, 3)
    assert (best.remaining, best.unsafe, len(best.choices), found) == expected
    assert not best.exhausted


def test_two_changes_that_clear_only_together_are_found() -> None:
    either = Finding(((("a", frozenset({0})),), (("b", frozenset({0})),)), target=True)
    best = search(MadeUp([either], []), axes_of([1] * 16, set()))
    assert {choice.axis for choice in best.choices} == {"a", "b"}
    assert best.remaining == 0


def test_a_change_that_brings_in_another_finding_is_not_made() -> None:
    old = Finding(((("a", frozenset({0})),),), target=True)
    new = Finding(((("a", frozenset({1, 2})),),), target=False)
    best = search(MadeUp([old, new], []), axes_of([1] * 16, set()))
    assert [choice.value for choice in best.choices] == ["3"]


def test_the_limit_on_evaluations_is_said() -> None:
    never = Finding(((("a", frozenset({0})), ("b", frozenset({0}))),), target=True)
    stubborn = Finding(((("c", frozenset({0})), ("d", frozenset(range(VALUES)))),), target=True)
    best = search(MadeUp([never, stubborn], []), axes_of([1] * 16, set()), most_evaluations=2)
    assert best.exhausted
