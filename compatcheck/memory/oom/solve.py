"""Solve a printed size for the number of tokens, where nobody states the batch or the length.

With an unknown length anything fits: some length makes almost every size. A solution is evidence only when it is a number
people choose (a multiple of a large power of two or of a thousand) that the printed size would seldom contain by accident,
or when the traceback itself says which tensor it is.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.out_of_memory import Match
from compatcheck.memory.oom.candidates import WIDTHS, PerToken, per_token
from compatcheck.memory.oom.sizes import request_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.core.out_of_memory import Printed
    from compatcheck.memory.oom.dimensions import Dimensions

ROUND = tuple(sorted([*(2**power for power in range(6, 18)), 500, 1000, 2000, 5000, 10000], reverse=True))
"""Divisors that make a length a round number, the rarest first."""
_MANY = 64
"""Sequences a batch is believed to have at most when nobody states its size."""


class Solution(NamedTuple):
    """The numbers of tokens for which one tensor prints as the size asked for."""

    kind: PerToken
    dtype: str
    first: int
    last: int
    round: int | None
    """The roundest number between them, None when none is round."""
    divisor: int | None
    """What makes it round."""

    @property
    def width(self) -> int:
        """How many numbers of tokens print so."""
        return self.last - self.first + 1


def solve(
    run: Dimensions, asked: Printed, rounding: str, *, serving: bool, parts: set[str] | None
) -> Iterator[Solution]:
    """Solve for the tokens of every tensor that grows with them.

    Args:
        run: dimensions of the run.
        asked: the printed size.
        rounding: how it relates to the request.
        serving: whether a serving engine runs the model.
        parts: places the traceback allows, None for any.
    """
    low, high = request_range(asked, rounding)
    batch = max((amount.value for amount in run.batches()), default=_MANY)
    limit = run.longest * batch
    for kind in per_token(run, serving=serving):
        if parts is not None and not parts & kind.parts:
            continue
        for dtype in kind.dtypes:
            size = prod(kind.features) * WIDTHS[dtype]
            first, last = -int(-low // size), min(int(high // size), limit)
            if max(1, first) <= last:
                number, divisor = _roundest(max(1, first), last, run)
                yield Solution(kind, dtype, max(1, first), last, number, divisor)


def _roundest(first: int, last: int, run: Dimensions) -> tuple[int | None, int | None]:
    known = sorted({amount.value for amount in (*run.lengths(),) if amount.value >= ROUND[-1]}, reverse=True)
    for divisor in (*known, *ROUND):
        number = -(-first // divisor) * divisor
        if number <= last:
            return number, divisor
    return None, None


def by_roundness(solutions: Iterable[Solution], limit: float) -> tuple[list[Solution], float]:
    """Choose the solutions that are too round to be an accident.

    Args:
        solutions: of all tensors the place allows.
        limit: largest chance that is accepted.

    Returns:
        The solutions, and the chance that any tensor's numbers would contain one as round; 1 when none is accepted.
    """
    found = list(solutions)
    best: tuple[list[Solution], float] = ([], 1.0)
    for divisor in sorted({solution.divisor for solution in found if solution.divisor}, reverse=True):
        chance = sum(min(1.0, solution.width / divisor) for solution in found)
        if chance <= limit:
            best = ([solution for solution in found if solution.divisor and solution.divisor >= divisor], chance)
    return best


def as_match(solution: Solution, run: Dimensions, *, from_place: bool) -> Match:
    """Describe a solution as a match that says what was solved for."""
    kind, tokens = solution.kind, solution.round or solution.first
    batches = [amount for amount in run.batches() if tokens % amount.value == 0]
    if solution.width == 1 or (solution.round and not from_place):
        words = f"{tokens:,} tokens"
    else:
        words = f"between {solution.first:,} and {solution.last:,} tokens"
    shape: tuple[int, ...] = (tokens, *kind.features)
    formula = f"[tokens, {kind.formula}]"
    if solution.round and len(batches) == 1:
        batch = batches[0]
        shape = (batch.value, tokens // batch.value, *kind.features)
        formula = f"[{batch.words}, length, {kind.formula}]"
    size = -int(-prod(shape) * WIDTHS[solution.dtype] // 1)
    name = f"{solution.dtype} {kind.name}"
    return Match(name, shape, solution.dtype, size, formula, kind.facts, (words,))
