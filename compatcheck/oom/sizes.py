"""Sizes as allocators print them: every era's own format, and what the allocator makes of a request before it prints it.

Ported from c10/cuda/CUDACachingAllocator.cpp: ``format_size`` (the same from 1.0 on), ``round_size`` and
``get_allocation_size`` (2 MiB segments since 1.2; before that requests were rounded to 128 KiB).
https://github.com/pytorch/pytorch/blob/v2.6.0/c10/cuda/CUDACachingAllocator.cpp
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from compatcheck.core.out_of_memory import Printed
from compatcheck.core.units import GIB, KIB, MIB, TIB

BLOCK = 512
SMALL_REQUEST = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_REQUEST = 10 * MIB
LARGE_SEGMENT = 20 * MIB
ROUND_LARGE = 2 * MIB
ROUND_LARGE_BEFORE_1_2 = 128 * KIB
UNINFORMATIVE = frozenset({SMALL_SEGMENT, LARGE_SEGMENT})
"""Segments that stand for every request up to 1 MiB, and for every one up to 10 MiB."""

_UNITS = {
    "bytes": 1, "byte": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "kb": KIB, "mb": MIB, "gb": GIB, "tb": TIB,
}  # fmt: skip
"""Messages that write MB and GB (MPS) mean binary units too: format_size of aten/src/ATen/mps/MPSAllocator.h."""
SIZE = r"\d+(?:\.\d+)?\s?(?:[kmgt]i?b|bytes?)\b"
"""Pattern of a printed size, case-insensitive."""


def round_request(size: int) -> int:
    """Round a request to whole blocks of 512 bytes."""
    return max(BLOCK, -(-size // BLOCK) * BLOCK)


def segment_size(size: int) -> int:
    """Return the segment the allocator asks the driver for: the number that messages print since torch 1.2."""
    rounded = round_request(size)
    if rounded <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if rounded < LARGE_REQUEST:
        return LARGE_SEGMENT
    return -(-rounded // ROUND_LARGE) * ROUND_LARGE


@lru_cache(maxsize=4096)
def parse_size(text: str) -> Printed | None:
    """Read a printed size into the range of byte counts that print so.

    The precision is that of the digits written: ``9.28 GiB`` stands for 10.7 MB of sizes, ``9 GiB`` for 1 GiB of them.
    """
    match = re.fullmatch(r"(?i)\s*(\d{1,18})(?:\.(\d{1,18}))?\s*([a-z]+)\s*", text)
    if match is None or match.group(3).lower() not in _UNITS:
        return None
    unit = _UNITS[match.group(3).lower()]
    digits = match.group(2) or ""
    value = Fraction(int(match.group(1) + digits), 10 ** len(digits))
    if unit == 1:
        return Printed(text.strip(), int(value), int(value))
    half = Fraction(1, 2 * 10 ** len(digits))
    low, high = (value - half) * unit, (value + half) * unit
    # a tie rounds to even in binary floating point; a size that lies exactly between two texts may print as either
    return Printed(text.strip(), max(0, -(-low.numerator // low.denominator)), high.numerator // high.denominator)


def tell_rounding(asked: Printed) -> str:
    """Tell from a printed size whether it can be a whole number of segments: ``segment``, else ``block``."""
    first = -(-asked.low_bytes // ROUND_LARGE) * ROUND_LARGE
    return "segment" if first <= asked.high_bytes else "block"


def prints_as(size: int, asked: Printed, rounding: str) -> bool:
    """Tell whether a tensor of this size makes the message print exactly what it printed."""
    if rounding == "segment":
        return asked.low_bytes <= segment_size(size) <= asked.high_bytes
    if asked.low_bytes <= size <= asked.high_bytes:
        return True
    if rounding == "exact":
        return False
    rounded = round_request(size)
    coarse = -(-rounded // ROUND_LARGE_BEFORE_1_2) * ROUND_LARGE_BEFORE_1_2
    return any(asked.low_bytes <= value <= asked.high_bytes for value in (rounded, coarse))


def request_range(asked: Printed, rounding: str) -> tuple[int, int]:
    """Return the smallest and largest request that prints so."""
    if rounding == "exact":
        return asked.low_bytes, asked.high_bytes
    if rounding == "block":
        return max(0, asked.low_bytes - ROUND_LARGE_BEFORE_1_2 + 1), asked.high_bytes
    first = -(-asked.low_bytes // ROUND_LARGE) * ROUND_LARGE
    last = asked.high_bytes // ROUND_LARGE * ROUND_LARGE
    if first <= SMALL_SEGMENT:
        return 1, SMALL_REQUEST if last == SMALL_SEGMENT else last
    low = SMALL_REQUEST + 1 if first <= LARGE_SEGMENT <= last else first - ROUND_LARGE + 1
    return low, last


def step(asked: Printed, rounding: str) -> int:
    """Return how far apart two neighbouring printed sizes lie here, in bytes."""
    width = asked.high_bytes - asked.low_bytes + 1
    return max(width, ROUND_LARGE) if rounding == "segment" else width
