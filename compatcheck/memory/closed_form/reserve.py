"""What the caching allocator holds beyond what tensors need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Component, Size

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

LOW, EXPECTED, HIGH = 0.0, 0.048, 0.22
"""Reserved beyond allocated, as a share of allocated, the hole of the logits apart. From replays of full-size training steps
through the allocator's algorithm, see docs/memory-model.md: least, median and largest."""
EXPANDABLE = Size(0, 1, 3)
"""The same in percent with ``expandable_segments``: pages of 2 MiB leave no unused tails of segments."""


def reserve(run: Run, allocated: Size, logits: int) -> Component:
    """Return the allocator's cache at the instant when so much is allocated.

    The loss leaves a hole: forward makes 16-bit logits and two float32 tensors of them, backward needs three float32 ones at once;
    the freed 16-bit block is too small for the third, which gets a segment of its own (CUDACachingAllocator.cpp, best fit without
    compaction).

    Args:
        run: the run.
        allocated: what tensors take, bound by bound.
        logits: bytes of the 16-bit logits once the loss was differentiated; 0 where no float32 copies are made.
    """
    if run.expandable:
        size = Size(*(share * part // 100 for share, part in zip(EXPANDABLE, allocated, strict=True)))
        words = "1 % of what is allocated, in expandable segments"
    else:
        shares = (LOW, EXPECTED, HIGH)
        size = Size(*(int(share * part) for share, part in zip(shares, allocated, strict=True)))
        size += Size(0, logits, logits) if logits else NOTHING
        words = f"{EXPECTED:.1%} of what is allocated" + (" + a hole the size of the 16-bit logits" if logits else "")
    return Component("allocator cache", "reserve", size, words, "replays of the caching allocator", run.role, ())
