"""Keys and values kept for generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, exactly

if TYPE_CHECKING:
    from compatcheck.memory.run import Model, Run


def bytes_per_token(
    model: Model, dtype_bytes: float, *, tensor_parallel: int = 1, pipeline_parallel: int = 1, compressed: bool = False
) -> float:
    """Return bytes of cache for one token: keys and values of every layer and key-value head.

    Heads are split over tensor-parallel ranks, at least one on each. Source: arXiv 2309.06180 section 1 (800 KB per token for
    OPT-13B = 2 × 5120 × 40 × 2 B); measured: probe kv_cache. Engines keep latent attention ``compressed``, whole on each
    tensor-parallel rank (arXiv 2405.04434 section 2.1; sglang/srt/model_executor/model_runner.py); transformers expands it.
    """
    layers = -(-model.layers // pipeline_parallel)
    if compressed and model.latent:
        return model.latent * dtype_bytes * layers
    heads = max(1, -(-model.kv_heads // tensor_parallel))
    return 2 * dtype_bytes * heads * model.head_dim * layers


def kv_cache(run: Run, tokens: int) -> Component:
    """Return the cache of so many tokens."""
    each = bytes_per_token(
        run.model, run.precision.compute, tensor_parallel=run.parallel.tensor, pipeline_parallel=run.parallel.pipeline
    )
    words = f"{each:,.0f} B × {tokens:,} tokens"
    facts = ("model.num_key_value_heads", "model.head_dim", "model.num_hidden_layers")
    return Component(
        "KV cache", "kv_cache", exactly(each * tokens), words, "arXiv 2309.06180; probe kv_cache", run.role, facts
    )
