"""The search on made-up problems: what it promises, held against trying everything."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.effects import CHANGES_TRAINING, PATCH_RELEASE
from compatcheck.core.fix import VERSION, Change
from compatcheck.fixing import search as search_module
from compatcheck.fixing.search import Search, State

NAMES = ("a", "b", "c", "d")
VALUES = 4


class Finding(NamedTuple):
    """A made-up finding: it fails where one of its alternatives holds, which is a set of values for each of some levers."""

    alternatives: tuple[tuple[tuple[str, frozenset[int]], ...], ...]
    target: bool = True

    def reasons(self, versions: Mapping[str, int]) -> list[str]:
        """Return the levers of the first alternative that holds, as the engine names those of the first clause."""
        return next(([n for n, _ in parts] for parts in self.alternatives if holds(parts, versions)), [])


def holds(parts: tuple[tuple[str, frozenset[int]], ...], versions: Mapping[str, int]) -> bool:
    return all(versions[name] in bad for name, bad in parts)


class MadeUp:
    """A problem whose findings are given."""

    most = 10**9

    def __init__(self, findings: Sequence[Finding]) -> None:
        start = dict.fromkeys(NAMES, 0)
        self.findings = [one for one in findings if bool(one.reasons(start)) == one.target]
        self.count = 0

    def __call__(self, changes: Sequence[Change]) -> dict[Hashable, frozenset[str]]:
        self.count += 1
        versions = {**dict.fromkeys(NAMES, 0), **{one.name: int(str(one.release)[2:]) for one in changes}}
        reasons = {place: one.reasons(versions) for place, one in enumerate(self.findings)}
        return {place: frozenset(names) for place, names in reasons.items() if names}


def change(name: str, value: int, distance: int = 1, *, safe: bool = True) -> Change:
    release = f"{value}.{value}"  # each in a series of its own
    effect = PATCH_RELEASE if safe else CHANGES_TRAINING
    return Change(
        VERSION, name, "0.0", release, frozenset({"s"}), effect, (distance,), "", release=release, move="minor"
    )


def levers(unsafe: frozenset[tuple[str, int]] = frozenset()) -> dict[str, list[Change]]:
    every = {name: [change(name, v, v, safe=(name, v) not in unsafe) for v in range(1, VALUES)] for name in NAMES}
    return {name: sorted(found, key=lambda one: (not one.safe, one.distance)) for name, found in every.items()}


def bad(*parts: tuple[str, set[int]]) -> tuple[tuple[str, frozenset[int]], ...]:
    return tuple((name, frozenset(values)) for name, values in parts)


def after(state: State) -> dict[str, str | None]:
    return {one.name: one.release for one in state.changes}


PARTS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.frozensets(st.integers(0, VALUES - 1), min_size=1)),
    min_size=1,
    max_size=2,
    unique_by=lambda part: part[0],
).map(tuple)
FINDINGS = st.builds(Finding, st.lists(PARTS, min_size=1, max_size=2).map(tuple), st.booleans())


@settings(max_examples=300)
@given(
    st.lists(FINDINGS, min_size=1, max_size=5),
    st.frozensets(st.tuples(st.sampled_from(NAMES), st.integers(1, VALUES - 1)), max_size=6),
)
def test_it_is_as_good_as_any_change_brings_in_nothing_and_has_none_too_many(
    findings: list[Finding], unsafe: frozenset[tuple[str, int]]
) -> None:
    problem, every = MadeUp(findings), levers(unsafe)
    state = Search(every, problem).run()
    before = problem(())
    assert state.failing <= before.keys()
    for single in itertools.chain.from_iterable(every.values()):
        left = problem((single,)).keys()
        assert not left <= before.keys() or len(state.blamed) <= len(left)
    for taken in state.changes:
        assert not problem([one for one in state.changes if one is not taken]).keys() <= state.failing


@settings(max_examples=300)
@given(st.lists(st.builds(Finding, st.tuples(PARTS)), min_size=1, max_size=4))
def test_all_is_cleared_that_can_be(findings: list[Finding]) -> None:
    problem = MadeUp(findings)
    state = Search(levers(), problem).run()
    versions = (dict(zip(NAMES, values, strict=True)) for values in itertools.product(range(VALUES), repeat=len(NAMES)))
    possible = any(not any(one.reasons(v) for one in problem.findings) for v in versions)
    assert possible == (not state.blamed)


def test_the_nearest_release_that_clears_is_taken() -> None:
    state = Search(levers(), MadeUp([Finding((bad(("a", {0, 1})),))])).run()
    assert after(state) == {"a": "2.2"}


def test_two_changes_that_clear_only_together_are_found() -> None:
    either = Finding((bad(("a", {0})), bad(("b", {0, 1}))))
    search = Search(levers(), MadeUp([either]))
    state = search.run()
    assert after(state) == {"a": "1.1", "b": "2.2"}
    assert search.is_smallest(state)


def test_a_change_that_brings_in_another_finding_is_not_made_where_another_is_there() -> None:
    new = Finding((bad(("a", {1, 2})),), target=False)
    state = Search(levers(), MadeUp([Finding((bad(("a", {0})),)), new])).run()
    assert after(state) == {"a": "3.3"}


def test_what_a_change_brings_in_is_cleared_by_those_that_have_to_move_with_it() -> None:
    """torch with torchvision and torchaudio: each alone stops at import."""
    vision = Finding(
        (bad(("a", {1, 2, 3}), ("b", {0, 1, 3})), bad(("a", {0}), ("b", {1, 2, 3}))),
        target=False,
    )
    audio = Finding((bad(("a", {1, 2, 3}), ("c", {0, 1, 2})), bad(("a", {0}), ("c", {1, 2, 3}))), target=False)
    search = Search(levers(), MadeUp([Finding((bad(("a", {0})),)), vision, audio]))
    state = search.run()
    assert after(state) == {"a": "1.1", "b": "2.2", "c": "3.3"}
    assert not search.is_smallest(state)


def test_what_costs_less_goes_before_what_is_nearer() -> None:
    problem = MadeUp([Finding((bad(("a", {0}), ("b", {0, 1, 2})),))])
    state = Search(levers(frozenset({("a", value) for value in range(1, VALUES)})), problem).run()
    assert after(state) == {"b": "3.3"}


def test_what_costs_more_is_made_only_for_what_is_left() -> None:
    unsafe = frozenset({("b", value) for value in range(1, VALUES)})
    problem = MadeUp([Finding((bad(("a", {0})),)), Finding((bad(("b", {0})),))])
    state = Search(levers(unsafe), problem).run()
    assert after(state) == {"a": "1.1", "b": "1.1"}
    assert [one.effect for one in state.changes] == [PATCH_RELEASE, CHANGES_TRAINING]


@pytest.mark.parametrize("order", [1, -1])
def test_a_series_one_of_whose_ends_changes_something_is_looked_through(order: int) -> None:
    series = [change("a", 1)._replace(value=f"1.1.{n}", release=f"1.1.{n}") for n in range(5)][::order]

    def evaluate(changes: Sequence[Change]) -> dict[Hashable, frozenset[str]]:
        good = {f"1.1.{n}" for n in (range(2, 5) if order == 1 else range(3))}  # the nearest ones are not
        return {} if {one.release for one in changes} & {*good, "2.2"} else {0: frozenset({"a"})}

    problem = type("Problem", (), {"__call__": lambda _, changes: evaluate(changes), "count": 0, "most": 10**9})()
    assert after(Search({"a": [*series, change("a", 2, 2)]}, problem).run()) == {"a": "1.1.2"}


def test_a_series_whose_ends_change_nothing_is_passed_over() -> None:
    far = [change("a", 1)._replace(value=f"1.1.{n}", release=f"1.1.{n}") for n in range(9, -1, -1)]
    stays = MadeUp([])
    stays.findings = [Finding((bad(("a", {0, 1})),))]

    def evaluate(changes: Sequence[Change]) -> dict[Hashable, frozenset[str]]:
        stays.count += 1
        return {} if after(State(tuple(changes), {})) == {"a": "2.2"} else {0: frozenset({"a"})}

    problem = type("Problem", (), {"__call__": lambda _, changes: evaluate(changes), "count": 0, "most": 10**9})()
    state = Search({"a": [*far, change("a", 2)]}, problem).run()
    assert after(state) == {"a": "2.2"}
    assert stays.count < len(far)


def test_independent_changes_are_the_smallest_set() -> None:
    problem = MadeUp([Finding((bad((name, {0})),)) for name in NAMES])
    search = Search(levers(), problem)
    state = search.run()
    assert len(state.changes) == len(NAMES)
    assert search.is_smallest(state)


def test_a_search_that_ran_out_of_evaluations_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MOST_EVALUATIONS", 2)
    search = Search(levers(), MadeUp([Finding((bad(("a", {0, 1})),))]))
    state = search.run()
    assert state.blamed
    assert not search.is_smallest(state)


def test_a_lever_that_clears_nothing_is_left_where_another_one_clears_all_and_is_nearer() -> None:
    problem = MadeUp([Finding((bad(("a", set(range(60))), ("b", {0, 1})),))])
    ways = {"a": [change("a", v, v) for v in range(1, 60)], "b": [change("b", v, v) for v in range(1, 4)]}
    assert after(Search(ways, problem).run()) == {"b": "2.2"}
    assert problem.count < 15


def test_a_nearer_change_wins_though_another_lever_is_found_to_clear_first() -> None:
    problem = MadeUp([Finding((bad(("a", {0, 1, 2}), ("b", {0})),))])
    ways = {"a": [change("a", v, v) for v in range(1, 60)], "b": [change("b", 1, 9)]}
    assert after(Search(ways, problem).run()) == {"a": "3.3"}


def test_a_setting_goes_no_farther_than_the_finding_needs() -> None:
    """The farthest value shows that a lever clears anything; the nearest that clears as much is kept."""
    values = [change("a", value, value)._replace(release=None, value=str(value)) for value in (1, 2, 3)]

    class Halved:
        """Fails with what is less than 2."""

        count, most = 0, 10**9

        def __call__(self, changes: Sequence[Change]) -> dict[Hashable, frozenset[str]]:
            enough = any(int(str(one.value)) >= 2 for one in changes)
            return {} if enough else {"too much": frozenset({"a"})}

    search = Search({"a": values}, Halved())
    far = (values[-1],)
    assert [one.value for one in search.prune(State(far, search.evaluate(far))).changes] == ["2"]
