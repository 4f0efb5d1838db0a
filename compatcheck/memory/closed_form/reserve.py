"""What the caching allocator holds beyond what tensors need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

LOW, EXPECTED, HIGH = 0.005, 0.03, 0.12
"""Reserved beyond allocated, as a share of allocated. From replays of five full-size training steps through the allocator's
algorithm (7B and 0.5B models, eager, flash and checkpointed): 1.3, 2.2, 2.9, 3.1 and 12.2 %; low and expected lie below the
least and at about the median, high is the largest."""


def reserve(run: Run, allocated: Size) -> Component:
    """Return the allocator's cache at the instant when so much is allocated."""
    high = HIGH
    words = f"{EXPECTED:.0%} of what is allocated"
    size = Size(int(LOW * allocated.low), int(EXPECTED * allocated.expected), int(high * allocated.high))
    return Component("allocator cache", "reserve", size, words, "replays of the caching allocator", run.role, ())
