"""What the caching allocator holds beyond what tensors need.

The mechanism was found by replaying the allocations of full-size training steps through the allocator's algorithm (the table is
in docs/memory-model.md). The blocks that the loss of the first step leaves behind are filled with gradients, temporaries of the
optimizer and the optimizer's states; the states stay, and the next loss finds no room of its size in one piece and gets new
segments. From then on the allocator holds the resident tensors, the blocks of the loss, and the larger of what backward keeps
and what the step needs, next to each other and not in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

ROUNDING = Size(0, 2, 5)
"""Percent of what is allocated that rounding to blocks of 512 bytes and segments of 2 to 20 MiB costs at least (replays of small
models: 1.5 to 5 %)."""
EXPANDABLE = 0.5
"""Share of the waste that is left with ``expandable_segments``: their pages can be joined, but tensors do not move."""


LESS, MORE = 0.05, 0.08
"""Range for what no formula itemises: temporaries of kernels and libraries, batches shorter than their limit, settings a
configuration does not show. The narrowest whole percents with which four of five peaks of each source of public numbers lie
in the range; how many of a source do that the numbers were chosen without is in docs/memory-model.md
(benchmarks/range_calibration.py)."""


class Shares(NamedTuple):
    """What shares the allocator's segments."""

    lasting: Size
    """Resident tensors, gathered parameters, masks."""
    loss: Size
    """Logits and what is made of them, the hole between them included."""
    kept: Size
    """What forward keeps for backward."""
    step: Size
    """Gradients and temporaries of the step."""
    apart: Size
    """Gradients that FSDP shards: they are allocated on the stream that reduces them, whose blocks no other stream gets (torch
    2.13.0 distributed/fsdp/_fully_shard/_fsdp_collectives.py foreach_reduce, distributed/fsdp/_runtime_utils.py
    _get_reduce_scatter_tensors; c10/cuda/CUDACachingAllocator.cpp: a block is of a stream)."""


class Held(NamedTuple):
    """What the allocator reserves once the second step ran."""

    shared: Size
    """By tensors of the stream that computes, whose blocks they share."""
    apart: Size
    """As `Shares.apart`."""


def segments(shares: Shares) -> Held:
    """Return what the allocator reserves once the second step ran.

    Low: every block is reused. High: none is.
    """
    together = [
        (lasting + loss + max(kept, step), lasting + max(loss + kept, step), lasting + loss + kept + step)
        for lasting, loss, kept, step in zip(*shares[:4], strict=True)
    ]
    return Held(Size(together[0][1], together[1][0], together[2][2]), shares.apart)


def not_itemised(run: Run, allocated: Size, bounds: Size) -> Component:
    """Return how much less or more than the itemised parts tensors may take: nothing is expected.

    Args:
        run: the run.
        allocated: the itemised parts, bound by bound.
        bounds: the same over all instants of the phase.
    """
    low = int((1 - LESS) * bounds.low) - allocated.low
    high = int((1 + MORE) * bounds.high) - allocated.high
    words = f"{-LESS:.0%} to +{MORE:.0%} of the parts itemised, over all instants of the phase"
    return Component(
        "not itemised", "workspace", Size(low, 0, high), words, "docs/memory-model.md, ranges", run.role, ()
    )


def reserve(run: Run, allocated: Size, held: Held | None, gradients: int = 0) -> Component:
    """Return the allocator's cache at the instant when so much is allocated.

    Args:
        run: the run.
        allocated: what tensors take, bound by bound.
        held: what the allocator holds in all; None before the first step.
        gradients: bytes of gradients among them.
    """
    shares = [percent * part // 100 for percent, part in zip(ROUNDING, allocated, strict=True)]
    if held is not None:
        factor = EXPANDABLE if run.expandable else 1.0
        whole = [total * (100 + percent) // 100 for total, percent in zip(held.shared, ROUNDING, strict=True)]
        there = min(gradients, held.apart.expected)
        left = held.apart.expected - there
        spare = [left + int(factor * (total - (part - there))) for total, part in zip(whole, allocated, strict=True)]
        shares = [shares[0], max(shares[1], spare[1]), max(shares[2], spare[2])]
        shares[2] = max(shares[1], shares[2])
    words = "rounding of blocks" if held is None else "blocks of the loss, of backward and of the step lie side by side"
    return Component(
        "allocator cache", "reserve", Size(*shares), words, "replays of the caching allocator", run.role, ()
    )
