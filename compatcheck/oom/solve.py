"""Solve a printed size for the number of tokens, where nobody states the batch or the length.

With an unknown length anything fits: some length makes almost every size. A solution is evidence only when the traceback
itself says which tensor it is, or when the number is simpler (a power of two, a few times a power of two, thousands) than the
printed size would contain by accident. Round sizes make round lengths of every tensor whose width is a power of two times
little, so that only logits are named for their round length: vocabularies have large odd factors.
"""

from __future__ import annotations

from itertools import product
from math import isqrt, prod
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.out_of_memory import Match
from compatcheck.oom.candidates import FLOATS, WIDTHS, PerToken, per_token
from compatcheck.oom.dimensions import Amount
from compatcheck.oom.sizes import request_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.core.out_of_memory import Printed
    from compatcheck.oom.dimensions import Dimensions

STEP = 64
"""Lengths that are no multiple of this are never round."""
ODD = 100
"""Smallest odd factor of a vocabulary for which a round number of tokens says something."""
_LOOKED_AT = 1000
"""Multiples looked at in a range; a range that has more says nothing anyway."""
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
    rank: int
    """How many numbers of an octave are as simple as it, 1 for a power of two; 0 without one."""

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
                yield Solution(kind, dtype, max(1, first), last, *_roundest(max(1, first), last))


def _roundest(first: int, last: int) -> tuple[int | None, int]:
    best: tuple[int | None, int] = (None, 0)
    for number in range(-(-first // STEP) * STEP, last + 1, STEP):
        rank = simplicity(number)
        if best[0] is None or rank < best[1]:
            best = (number, rank)
        if rank == 1 or number > first + STEP * _LOOKED_AT:
            break
    return best


def simplicity(number: int) -> int:
    """Count the numbers between a number and its half that are as simple: powers of two, their odd multiples, thousands.

    >>> simplicity(16384), simplicity(3 * 4096), simplicity(10000), simplicity(131 * 4096)
    (1, 2, 4, 66)
    """
    plain = (odd_part(number) + 1) // 2
    thousands = (odd_part(number // 125) + 1) // 2 + 1 if number % 1000 == 0 else plain
    return min(plain, thousands)


def odd_part(number: int) -> int:
    """Return a number without its factors of two."""
    return number // (number & -number)


def by_roundness(solutions: Iterable[Solution], limit: float) -> tuple[list[Solution], float]:
    """Choose the logits whose number of tokens is too simple to be an accident.

    Returns:
        The solutions, and the chance that the range of either dtype would contain a number as simple; 1 when none is accepted.
    """
    found = [
        solution
        for solution in solutions
        if solution.kind.name == "logits" and odd_part(prod(solution.kind.features)) >= ODD and solution.round
    ]
    rank = max((solution.rank for solution in found), default=0)
    chance = sum(rank * solution.width / solution.last for solution in found)
    return (found, chance) if found and chance <= limit else ([], 1.0)


def solve_scores(run: Dimensions, asked: Printed, rounding: str) -> Iterator[Match]:
    """Yield attention scores ``[batch, heads, length, length]`` of the size asked for, with the length solved for."""
    heads, longest = run.model("num_attention_heads"), max(run.longest, run.model("max_position_embeddings") or 0)
    low, high = request_range(asked, rounding)
    if heads is None:
        return
    batches = run.batches() or [Amount(1, "1", ())]
    for batch, ranks, dtype in product(batches, run.tensor_parallel(), FLOATS):
        width = batch.value * (heads // ranks) * WIDTHS[dtype]
        first, last = isqrt(max(0, -int(-low // width) - 1)) + 1, isqrt(int(high // width))
        if heads % ranks or not STEP <= first <= last <= longest:
            continue
        shape = (batch.value, heads // ranks, first, first)
        split = "" if ranks == 1 else f" / {ranks}"
        facts = (*batch.facts, "model.num_attention_heads", *(("training.tensor_parallel",) if ranks > 1 else ()))
        words = f"a length of {first:,}" if first == last else f"a length between {first:,} and {last:,}"
        formula = f"[{batch.words}, heads{split}, length, length]"
        yield Match(
            f"{dtype} attention scores", shape, dtype, int(prod(shape) * WIDTHS[dtype]), formula, facts, (words,)
        )


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
