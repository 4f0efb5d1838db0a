"""Print what TRL's fused head takes at the peak of its forward and backward beside the closed form's arithmetic, on a CPU.

The code is that of the trl that is installed (1.15 or newer); what runs as a kernel on a GPU works in place, and is replaced by
nothing, and so are the products that torch adds to a float32 tensor on a GPU without a copy of their factors.

Usage: python benchmarks/tiled_logits.py  (needs torch, trl >= 1.15)
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from policy_logits import Peak
from trl.kernels import chunked_logprob
from trl.trainer import utils

TOKENS, WORDS = chunked_logprob.TOKEN_CHUNK_SIZE, utils._CHUNKED_LOGPROB_CHUNK_SIZE  # noqa: SLF001
SHAPES = ((1024, 64, 40000), (2048, 64, 40000), (1024, 128, 40000), (1024, 64, 80000), (8192, 64, 40000))
PRECISIONS = (
    ("bfloat16", torch.bfloat16, None),
    ("float32", torch.float32, None),
    ("autocast", torch.float32, torch.bfloat16),
)


def measure(
    shape: tuple[int, int, int], weights: torch.dtype, autocast: torch.dtype | None, *, trained: bool
) -> list[int]:
    """Return the peaks of forward and backward beside the hidden states and the head that are there before."""
    tokens, width, words = shape
    head = torch.zeros(words, width, dtype=weights).requires_grad_(trained)
    labels = torch.zeros(1, tokens + 1, dtype=torch.long)
    before = torch.zeros(1, tokens + 1, width, dtype=autocast or weights).requires_grad_(True)
    context = torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext()
    with Peak() as peak, context:
        hidden = before * 1
        peak.see(hidden)
        peak.see(head)
        peak.live = peak.peak = 0
        mask = labels[:, 1:] != -100
        given = (hidden[:, :-1][mask], head, None, labels[:, 1:][mask], 1.0, WORDS, None, 1.0)
        found = chunked_logprob.ChunkedLogProbFunction.apply(*given, ("log_probs", "entropy", "is_top1"))
        forward, peak.peak = peak.peak, peak.live
        found[0].sum().backward()
    return [forward, peak.peak]


def expect(
    shape: tuple[int, int, int], weights: torch.dtype, autocast: torch.dtype | None, *, trained: bool
) -> list[int]:
    """Return the same by the arithmetic of memory/closed_form/logits.py."""
    tokens, width, words = shape
    each, wide = (autocast or weights).itemsize, autocast is not None
    common = each * (min(tokens, TOKENS) * WORDS + tokens * width)
    casts = [each * min(words, WORDS * tiles) * width if wide else 0 for tiles in (1, 2)]
    states = (4 + (each if each < 4 else 0)) * tokens * width
    own = (4 + (weights.itemsize if weights.itemsize < 4 else 0)) * words * width if trained else 0
    return [common + casts[0], common + casts[1] + states + own]


def main() -> None:
    """Print a line for each shape."""

    def nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401 (any kernel's)
        return None

    chunked_logprob._forward_tile = chunked_logprob._backward_tile = chunked_logprob._addmm_fp32 = nothing  # noqa: SLF001
    for name, weights, autocast in PRECISIONS:
        for trained in (True, False):
            for shape in SHAPES:
                counted, expected = (ask(shape, weights, autocast, trained=trained) for ask in (measure, expect))
                ratios = " ".join(
                    f"{one:,} / {other:,} = {one / other:.4f}" for one, other in zip(counted, expected, strict=True)
                )
                print(name, "head trained" if trained else "head frozen", *shape, ratios)


if __name__ == "__main__":
    main()
