"""Search the smallest set of changes, exactly: branch and bound over sets of axes, best first within a set.

An axis is what can be changed, a package or a setting; a choice is a value it can take. The best combination leaves the
fewest findings, then has the fewest unsafe changes, then the fewest changes, then the smallest ones. Nothing is greedy:
a change that clears nothing by itself is taken when two together clear what neither clears alone.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

MOST_CHANGES = 4
"""Largest set of changes that is looked at."""
MOST_EVALUATIONS = 6000
"""Combinations the rules are evaluated on; a run of 10 packages takes about 6 ms for each."""


class Choice(NamedTuple):
    """One value an axis can take."""

    axis: str
    value: str
    cost: tuple[int, ...]
    """How far it moves, smallest first; comparable across axes."""
    cell: Hashable
    """Choices of one axis with equal cells have the same outcome, whatever else changes."""
    safe: bool = True


class Score(NamedTuple):
    """The outcome of a combination."""

    remaining: int
    """Findings that were to be cleared and are still there."""
    allowed: bool = True
    """Whether it brings in no finding that was not there."""


class Problem(Protocol):
    """What is searched."""

    def score(self, choices: Sequence[Choice]) -> Score:
        """Evaluate a combination; depends on the axes and cells alone."""

    def bound(self, axes: Sequence[str]) -> int:
        """Return a number of findings that remain whatever values these axes take."""

    def is_spent(self) -> bool:
        """Tell whether the time for evaluations is used up."""

    def lowest(self) -> int:
        """Return a number of findings that remain whatever changes."""

    def core(self, axes: Sequence[str], limit: int) -> frozenset[str] | None:
        """Return axes of which at least one more has to change for a resolution that leaves fewer than ``limit`` findings.

        None when these axes may be enough; an empty set when these axes are of no use together, whatever else changes.
        """

    def accept(self, choices: Sequence[Choice], limit: int) -> bool:
        """Tell whether a combination can be resolved, among those that leave fewer than ``limit`` findings."""


class Best(NamedTuple):
    """The best combination found."""

    choices: tuple[Choice, ...]
    remaining: int
    refused: tuple[tuple[Choice, ...], ...] = ()
    """Better combinations that could not be resolved, the best first."""
    exhausted: bool = False
    """Whether the limit on evaluations cut the search short."""

    @property
    def unsafe(self) -> int:
        """Count the unsafe changes."""
        return sum(not choice.safe for choice in self.choices)


def search(
    problem: Problem,
    axes: Mapping[str, Sequence[Choice]],
    *,
    most_changes: int = MOST_CHANGES,
    most_evaluations: int = MOST_EVALUATIONS,
    safe_leaves: int = 0,
) -> Best:
    """Find the best combination that the resolver accepts.

    Args:
        problem: evaluates combinations.
        axes: what can be changed, with the choices of each.
        most_changes: size of the largest set looked at.
        most_evaluations: evaluations after which the best so far is returned.
        safe_leaves: findings that are known to remain with safe changes alone: fewer take an unsafe one.
    """
    return _Search(problem, axes, most_evaluations, safe_leaves).run(most_changes)


class _Search:
    def __init__(
        self, problem: Problem, axes: Mapping[str, Sequence[Choice]], most_evaluations: int, safe_leaves: int
    ) -> None:
        self.problem = problem
        self.safe_leaves = safe_leaves
        self.axes = {name: _by_cell(choices) for name, choices in sorted(axes.items()) if choices}
        self.left = most_evaluations
        self.cores: list[frozenset[str]] = []
        self.refused: list[tuple[Choice, ...]] = []
        self.exhausted = False

    def run(self, most_changes: int) -> Best:
        best = Best((), self.problem.score(()).remaining)
        if not best.remaining:
            return best
        lowest = self.problem.lowest()
        for size in range(1, min(most_changes, len(self.axes)) + 1):
            if (best.remaining, best.unsafe) <= self._at_least(lowest):
                break
            found = self._of_size(size, best)
            if found is not None:
                best = found
        return best._replace(refused=tuple(self.refused), exhausted=self.exhausted)

    def _of_size(self, size: int, best: Best) -> Best | None:
        """Return the best combination of exactly this many changes that beats the best so far."""
        limit = (best.remaining, best.unsafe)
        streams = []
        promising = []
        for axes in itertools.combinations(self.axes, size):
            if self.problem.is_spent():
                self.exhausted = True
                break
            least = self._at_least(self.problem.bound(axes))
            if least < limit and not self._misses_a_core(axes):
                promising.append((least, axes))
        for _, axes in sorted(promising):  # where time runs out, it runs out on those that can clear the least
            streams += [_Stream(score.remaining, cells) for score, cells in self._good_cells(axes, limit)]
        heap = [(stream.key, index) for index, stream in enumerate(streams)]
        heapq.heapify(heap)
        feasible: dict[tuple[str, ...], bool] = {}
        while heap:
            key, index = heapq.heappop(heap)
            if key[:2] >= limit:
                return None
            stream = streams[index]
            choices = stream.choices
            axes = tuple(choice.axis for choice in choices)
            if axes not in feasible:
                core = None if self._misses_a_core(axes) else self.problem.core(axes, limit[0] + bool(limit[1]))
                if core:
                    self.cores.append(core)
                    self.refused.append(choices)
                feasible[axes] = core is None and not self._misses_a_core(axes)
            if not feasible[axes]:
                continue
            if self.problem.accept(choices, limit[0] + bool(limit[1])):
                return Best(choices, key[0])
            self.refused.append(choices)
            if stream.advance():
                heapq.heappush(heap, (stream.key, index))
        return None

    def _at_least(self, remaining: int) -> tuple[int, int]:
        """Return the fewest unsafe changes that leave so many findings, behind their number."""
        return remaining, int(remaining < self.safe_leaves)

    def _misses_a_core(self, axes: Iterable[str]) -> bool:
        return any(core.isdisjoint(axes) for core in self.cores)

    def _good_cells(
        self, axes: Sequence[str], limit: tuple[int, int]
    ) -> Iterator[tuple[Score, tuple[Sequence[Choice], ...]]]:
        for cells in itertools.product(*(self.axes[name] for name in axes)):
            if not self.left or self.problem.is_spent():
                self.exhausted = True
                return
            self.left -= 1
            score = self.problem.score(tuple(cell[0] for cell in cells))
            if score.allowed and self._at_least(score.remaining) < limit:
                yield score, cells


def _by_cell(choices: Sequence[Choice]) -> list[list[Choice]]:
    """Group choices by their outcome, the best of each first."""
    cells: dict[Hashable, list[Choice]] = {}
    for choice in sorted(choices, key=_rank):
        cells.setdefault(choice.cell, []).append(choice)
    return list(cells.values())


def _rank(choice: Choice) -> tuple[bool, tuple[int, ...], str]:
    return not choice.safe, choice.cost, choice.value


Key = tuple[int, int, tuple[tuple[int, ...], ...], tuple[str, ...]]


def key_of(remaining: int, choices: Sequence[Choice]) -> Key:
    """Return what orders combinations of one size: what remains, unsafe changes, the largest move, the next largest, …."""
    return (
        remaining,
        sum(not choice.safe for choice in choices),
        tuple(sorted((choice.cost for choice in choices), reverse=True)),
        tuple(f"{choice.axis}={choice.value}" for choice in choices),
    )


class _Stream:
    """The combinations of some cells, best first, made one at a time."""

    def __init__(self, remaining: int, cells: Sequence[Sequence[Choice]]) -> None:
        self.remaining = remaining
        self.cells = cells
        self.seen: set[tuple[int, ...]] = set()
        self.heap: list[tuple[Key, tuple[int, ...]]] = []
        self._push((0,) * len(cells))

    def _push(self, at: tuple[int, ...]) -> None:
        if at in self.seen or any(index >= len(cell) for index, cell in zip(at, self.cells, strict=True)):
            return
        self.seen.add(at)
        choices = tuple(cell[index] for index, cell in zip(at, self.cells, strict=True))
        heapq.heappush(self.heap, (key_of(self.remaining, choices), at))

    @property
    def key(self) -> Key:
        return self.heap[0][0]

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(cell[index] for index, cell in zip(self.heap[0][1], self.cells, strict=True))

    def advance(self) -> bool:
        """Move on to the next combination; False at the end."""
        _, at = heapq.heappop(self.heap)
        for position in range(len(at)):
            self._push((*at[:position], at[position] + 1, *at[position + 1 :]))
        return bool(self.heap)
