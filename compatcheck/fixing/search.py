"""Search changes after which nothing fails: the nearest good value of each lever, then pairs that help only together.

A lever is a package or a setting; its changes are looked at from the nearest to the farthest, and the first one that clears
what the findings blame the lever for is its step. Of a series that is not its own the first and the last release are looked at
before the others: where these change nothing, so do those. The best steps are made one upon the other. Where none helps, each
lever is moved first though it helps nothing by itself, and what fails then is cleared in the same way. Every combination is
judged whole, and at the end no change is left that could be taken back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from compatcheck.core.effects import EFFECTS, SLOWER
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.fixing.moves import series_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from compatcheck.core.fix import Change

MOST_EVALUATIONS = 800
"""Evaluations of a subject after which a search keeps what it has; one takes about 3 ms, of a large configuration 12 ms."""


class Evaluate(Protocol):
    """The problem."""

    def __call__(self, changes: Sequence[Change]) -> Mapping[Hashable, frozenset[str]]:
        """Return what fails after some changes, each with the levers it blames."""

    @property
    def count(self) -> int:
        """The evaluations so far."""

    @property
    def most(self) -> int:
        """The count at which every search stops."""


class Changes(Mapping[str, Sequence["Change"]]):
    """Changes by lever, those of one made when they are first asked for: most packages are blamed for nothing."""

    def __init__(self, levers: Iterable[str], make: Callable[[str], Sequence[Change]]) -> None:
        """Take the levers and what makes the changes of one."""
        self._levers = dict.fromkeys(levers)
        self._make = cache(make)

    def __getitem__(self, lever: str) -> Sequence[Change]:
        if lever not in self._levers:
            raise KeyError(lever)
        return self._make(lever)

    def __contains__(self, lever: object) -> bool:
        return lever in self._levers

    def __iter__(self) -> Iterator[str]:
        return iter(self._levers)

    def __len__(self) -> int:
        return len(self._levers)


class Shortage(NamedTuple):
    """That a run does not fit, or one step of what a phase of it needs too much: who mends it depends on what else is changed."""

    of: Hashable
    step: int


class State(NamedTuple):
    """Some changes and what they leave."""

    changes: tuple[Change, ...]
    blamed: Mapping[Hashable, frozenset[str]]
    """What fails, each with the levers it blames."""

    @property
    def failing(self) -> frozenset[Hashable]:
        """Return what fails."""
        return frozenset(self.blamed)

    @property
    def rank(self) -> tuple[object, ...]:
        """Return what orders states, the best first: what is left, what the changes cost, how much moves, how far it goes."""
        cost = tuple(sorted((EFFECTS.index(change.effect) for change in self.changes), reverse=True))
        farthest = tuple(sorted((change.distance for change in self.changes), reverse=True))
        moving = len(self.changes) + sum(change.along for change in self.changes)
        return len(self.blamed), cost[:1], moving, farthest, [change.lever for change in self.changes]


class Search:
    """The levers of a group, and the evaluations that may still be made."""

    def __init__(self, levers: Mapping[str, Sequence[Change]], evaluate: Evaluate, most: int | None = None) -> None:
        """Keep the problem; ``most`` is the count of evaluations to stop at, by default `MOST_EVALUATIONS` from now."""
        self.levers = levers
        self.evaluate = evaluate
        self._most = min(evaluate.count + MOST_EVALUATIONS, evaluate.most) if most is None else most
        self._unmoved: set[tuple[Hashable, frozenset[str], str]] = set()
        """What fails, whom it blames, and a lever of theirs that clears it nowhere."""
        self._turns: dict[str, dict[frozenset[Hashable], Change]] = {}
        """The nearest change of each lever for each way in which something else failed, or failed for another reason."""

    @property
    def spent(self) -> bool:
        """Whether all evaluations are used up."""
        return self.evaluate.count >= self._most

    def run(self) -> State:
        """Return the best state found; it brings in nothing that fails."""
        state = self.climb(State((), self.evaluate(())))
        while state.blamed and (better := self._pair(state)) is not None:
            state = self.climb(better)
        return self._cheapen(self.prune(state))

    def _cheapen(self, state: State) -> State:
        """Put changes that cost less in the place of each that costs more than time, where they do."""
        for change in sorted(state.changes, key=lambda one: -EFFECTS.index(one.effect)):
            level = EFFECTS.index(change.effect)
            if self.spent or state.blamed or level <= EFFECTS.index(SLOWER) or change not in state.changes:
                continue
            less = Changes(self.levers, partial(self._below, level))
            kept = tuple(other for other in state.changes if other is not change)
            cheaper = Search(less, self.evaluate, self._most).climb(State(kept, self.evaluate(kept)))
            if cheaper.failing <= state.failing:
                state = self.prune(cheaper)
        return state

    def _below(self, level: int, lever: str) -> list[Change]:
        return [change for change in self.levers[lever] if EFFECTS.index(change.effect) < level]

    def with_change(self, state: State, change: Change) -> State:
        """Return the state after one change more, or another one of the same lever."""
        changes = _with(state, change)
        return State(changes, self.evaluate(changes))

    def fitting(self, state: State, lever: str) -> list[Change]:
        """Return the changes of a lever with which a state leaves no more than it does."""
        return [
            change
            for change in self.levers[lever]
            if change in state.changes or (not self.spent and self.with_change(state, change).failing <= state.failing)
        ]

    def is_smallest(self, state: State) -> bool:
        """Tell whether no smaller set clears as much: pairs were looked at, or each change answers a finding of its own."""
        if self.spent or len(state.changes) <= 2:
            return not self.spent
        apart: list[frozenset[str]] = []
        blamed = self.evaluate(())
        for key, levers in blamed.items():
            if key not in state.blamed and not any(levers & other for other in apart):
                apart.append(levers)
        return len(apart) >= len(state.changes)

    def climb(self, state: State) -> State:
        """Make the best steps one upon the other until none clears anything without bringing in something else."""
        while state.blamed:
            better = state
            for after, change in sorted(self._steps(state), key=lambda step: step[0].rank):
                if not better.blamed:
                    break
                again = after if better is state else self.with_change(better, change)
                better = again if again.failing < better.failing else better
            if better is state:
                break
            state = better
        return state

    def _blamed(self, state: State) -> list[str]:
        names = frozenset().union(*state.blamed.values())
        return sorted(name for name in names if name in self.levers)

    def _steps(self, state: State) -> list[tuple[State, Change]]:
        """Return the step of each lever; where one change clears all, those alone that may be better than it."""
        best = self._find_clearing(state)
        steps = (self._nearest(state, name, best) for name in self._blamed(state))
        return [step for step in steps if step is not None]

    def _find_clearing(self, state: State) -> State | None:
        """Return the first state in which nothing fails, of levers that everything blames, taken by turns."""
        blamed = frozenset.intersection(*state.blamed.values())
        turns = (self._promising(state, name, None) for name in self._blamed(state) if name in blamed)
        for changes in itertools.zip_longest(*turns):
            untried = (State(_with(state, one), {}) for one in changes if one)
            for best in sorted(
                untried, key=lambda one: one.rank
            ):  # what is worse than one that clears all need not be tried
                if not self.evaluate(best.changes):
                    return best
        return None

    def _nearest(self, state: State, lever: str, clearing: State | None) -> tuple[State, Change] | None:
        """Return the nearest change of a lever that clears all that blames it, else the one that clears the most."""
        blaming = {(key, levers, lever) for key, levers in state.blamed.items() if lever in levers}
        unmoved = blaming - self._unmoved
        best = None
        for change in self._promising(state, lever, clearing) if unmoved else ():
            after = self.with_change(state, change)
            if (turned := _without_steps(after)) != _without_steps(state):
                self._turns.setdefault(lever, {}).setdefault(turned, change)
            unmoved = {found for found in unmoved if found[0] in after.blamed}
            if after.failing < state.failing and (best is None or len(after.blamed) < len(best[0].blamed)):
                best = after, change
                if all(key not in after.blamed for key, _, _ in blaming):
                    return best
        if clearing is None:
            self._unmoved |= {found for found in unmoved if not isinstance(found[0], Shortage)}
        return best

    def _promising(self, state: State, lever: str, clearing: State | None) -> Iterator[Change]:
        """Yield the changes of a lever while evaluations are left, without series whose first and last release change nothing.

        Where a state is known that leaves nothing, none follows the series of the last one that may come to a better one.
        """
        groups = list(by_series(self.levers[lever]))
        if clearing is not None:
            while groups and all(State(_with(state, one), {}).rank > clearing.rank for one in groups[-1]):
                groups.pop()
        for group in groups:
            alike = len(group) > 1 and group[0].release is not None and not group[0].stays_in_series
            ends = (group[0], group[-1])
            if alike and not any(self.spent or self.with_change(state, end).blamed != state.blamed for end in ends):
                continue
            for change in group:
                if self.spent:
                    return
                yield change

    def _pair(self, state: State) -> State | None:
        """Return the best state behind a change that helps nothing by itself, None where there is none."""
        best = None
        turns = [change for lever in self._blamed(state) for change in self._turns.get(lever, {}).values()]
        for first in sorted((self.with_change(state, change) for change in turns), key=lambda one: one.rank):
            if self.spent:
                break
            after = self.climb(first)
            if after.failing < state.failing and (best is None or after.rank < best.rank):
                best = after
        return best

    def prune(self, state: State, allow: Callable[[Sequence[Change]], bool] | None = None) -> State:
        """Take back what is not needed, what costs most first, and move settings no farther than needed; the rest is allowed."""
        for change in sorted(state.changes, key=lambda one: (-EFFECTS.index(one.effect), *(-n for n in one.distance))):
            changes = tuple(other for other in state.changes if other is not change)
            without = State(changes, self.evaluate(changes))
            if without.failing <= state.failing and (allow is None or allow(changes)):
                state = without
        for change in state.changes:
            nearer = (one for one in self.levers.get(change.lever, ()) if one.distance < change.distance)
            for one in nearer if change.release is None else ():
                after = self.with_change(state, one)
                if one.effect == change.effect and after.failing <= state.failing:
                    state = after
                    break
        return state


def _without_steps(state: State) -> frozenset[Hashable]:
    """Return what fails and whom it blames, but for how much is missing: steps are made one by one, and none needs another."""
    return frozenset(item for item in state.blamed.items() if not isinstance(item[0], Shortage))


def _with(state: State, change: Change) -> tuple[Change, ...]:
    kept = (other for other in state.changes if other.lever != change.lever)
    return tuple(sorted((*kept, change), key=lambda one: one.lever))


def by_series(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Group the changes of a lever by the series of their releases, in their order."""
    for _, group in itertools.groupby(changes, lambda one: one.release and series_of(one.release)):
        yield list(group)
