"""Attention masks that are materialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Component, Size, exactly

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


def masks(run: Run) -> tuple[Component, ...]:
    """Return the S × S mask.

    sdpa needs none without padding; with padding one in the dtype of the queries serves all layers: 2 × batch × S² (measured:
    probe masks, docs/sweeps.md). Eager attention always adds a causal mask. Flash attention and flex attention have none.
    """
    model, each = run.model, run.precision.compute
    if model.attention not in {"sdpa", "eager"}:
        return ()
    count = run.micro_batch * run.sequence**2 / run.parallel.context
    size = exactly(each * count)
    if model.attention == "sdpa" and run.padded is None:
        size = Size(0, 0, size.high)
    elif model.attention == "sdpa" and not run.padded:
        size = NOTHING
    if not size.high:
        return ()
    words = f"{each:g} B × {run.micro_batch} × {run.sequence:,}²"
    facts = ("model.attn_implementation", "run.attention_mask")
    return (Component("attention mask", "masks", size, words, "measured: probe masks", run.role, facts),)
