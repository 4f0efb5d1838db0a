"""Which parameters and layers one rank holds under tensor, pipeline, context and expert parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


class Held(NamedTuple):
    """Parameters of one rank before they are split over data-parallel ranks."""

    blocks: float
    """Dense parameters of its blocks."""
    experts: float
    """Routed experts of its blocks."""
    embedding: float
    lm_head: float
    """0 when tied."""
    other: float
    """Final norm, positions, towers."""
    layers: int
    """Blocks of the rank with most."""
    tied: bool = False

    @property
    def total(self) -> float:
        """All of them."""
        return self.blocks + self.experts + self.embedding + self.lm_head + self.other

    @property
    def linear(self) -> float:
        """Those in weight matrices that products use; a lookup in the embedding is none."""
        return self.blocks + self.experts + (self.embedding if self.tied else self.lm_head)


def held(run: Run) -> Held:
    """Return what the fullest rank holds.

    Tensor parallelism splits every weight matrix and the vocabulary (Megatron-LM, arXiv 1909.08053 section 3); pipeline stages
    take whole blocks, the first also the embedding and the last the head, so one stage holds the larger of the two; experts are
    spread over expert-parallel ranks.
    """
    model, parallel = run.model, run.parallel
    stages, tensor = parallel.pipeline, parallel.tensor
    layers = -(-model.layers // stages)
    share = layers / model.layers
    dense = (model.in_blocks - model.expert) * share / tensor
    experts = model.expert * share / (max(1, parallel.expert) * (tensor if parallel.expert == 1 else 1))
    embedding, head = model.embedding / tensor, model.lm_head / tensor
    if stages > 1:
        embedding, head = max(embedding, head), 0.0
    return Held(dense, experts, embedding, head, model.other + model.vision, layers, model.tied)


def in_flight(run: Run) -> int:
    """Return how many micro batches the first pipeline stage keeps activations of under one forward, one backward.

    Source: PipeDream-flush, arXiv 2006.09503 section 3.1: as many as there are stages, at most all micro batches of a step.
    """
    return max(1, min(run.parallel.pipeline, run.accumulation))
