"""Shapes that a traceback prints: compiled code allocates with literal ones, and so does much hand-written code."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from compatcheck.core.out_of_memory import Match
from compatcheck.core.units import parse_count
from compatcheck.oom.sizes import prints_as, request_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.out_of_memory import Frame, Printed

_FRAMES = 4
"""Innermost frames whose source lines are looked at."""
_BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_DTYPES = "|".join(_BYTES)
_SHAPE = re.compile(
    rf"\((?P<shape>\s*\w+\s*(?:,\s*\w+\s*)*,?\s*)\)\s*,\s*(?:\([^()]{{0,200}}\)\s*,\s*)?(?:dtype=)?(?:torch\.)?(?P<dtype>{_DTYPES})\b"
)
"""A shape in parentheses with a dtype behind it, strides between them or not: ``empty_strided_cuda((54080, 4096), (4096, 1),
torch.bfloat16)`` of torch/_inductor/codegen/wrapper.py, ``((s10, 1, 76032), float32)``."""


def read_shapes(frames: Sequence[Frame], asked: Printed, rounding: str) -> Iterator[Match]:
    """Yield the tensors whose shape the innermost source lines print and whose size is the one asked for.

    One dimension may be a symbol of compiled code, which is solved for then.
    """
    for frame in reversed(frames[-_FRAMES:]):
        for found in _SHAPE.finditer(frame.code):
            words = [part.strip() for part in found["shape"].split(",") if part.strip()]
            match = _solve(words, found["dtype"], asked, rounding)
            if match is not None:
                yield match


def _solve(words: Sequence[str], dtype: str, asked: Printed, rounding: str) -> Match | None:
    sizes = [parse_count(word) for word in words]
    known = [size for size in sizes if size is not None]
    symbols = [word for word, size in zip(words, sizes, strict=True) if size is None]
    width = prod(known) * _BYTES[dtype]
    if len(symbols) > 1 or width == 0:
        return None
    text = f"[{', '.join(words)}]"
    if not symbols:
        shape = tuple(known)
        match = Match(f"{dtype} tensor of the source line", shape, dtype, width, f"{text} as printed", ())
        return match if prints_as(width, asked, rounding) else None
    low, high = request_range(asked, rounding)
    first, last = -(-low // width), high // width
    if not 1 <= first <= last:
        return None
    shape = tuple(first if size is None else size for size in sizes)
    between = f"{symbols[0]} = {first:,}" if first == last else f"{symbols[0]} between {first:,} and {last:,}"
    name = f"{dtype} tensor of the source line"
    return Match(name, shape, dtype, prod(shape) * _BYTES[dtype], f"{text} as printed", (), (between,))
