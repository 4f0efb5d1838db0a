"""Which parameters and layers one rank holds under tensor, pipeline, context and expert parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

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


def count_parts(run: Run) -> int:
    """Return over how many ranks and devices what stands in every block is spread: matrices by tensor ranks, blocks by stages."""
    return run.parallel.tensor * run.parallel.pipeline * run.parallel.devices


def held(run: Run) -> Held:
    """Return what the fullest rank holds.

    Tensor parallelism splits every weight matrix and the vocabulary (Megatron-LM, arXiv 1909.08053 section 3); pipeline stages
    take whole blocks, the first also the embedding and the last the head, so one stage holds the larger of the two; experts are
    spread over expert-parallel ranks. A device map of ``auto`` gives each device the same bytes of whole blocks (accelerate 1.9.0
    utils/modeling.py, get_balanced_memory).
    """
    model, parallel = run.model, run.parallel
    stages, tensor = parallel.pipeline, parallel.tensor
    layers = -(-model.layers // (stages * parallel.devices))
    share = -(-model.layers // stages) / model.layers / parallel.devices
    dense = (model.in_blocks - model.expert) * share / tensor
    experts = model.expert * share / (parallel.expert * parallel.expert_tensor)
    embedding, head = model.embedding / tensor / parallel.devices, model.lm_head / tensor / parallel.devices
    if stages > 1:
        embedding, head = max(embedding, head), 0.0
    other = (model.other + model.vision) / parallel.devices
    return Held(dense, experts, embedding, head, other, layers, model.tied)


def is_gathered_for_a_step(run: Run) -> bool:
    """Tell whether FSDP gathers a unit's shards once, for forward and backward: shard_grad_op, no resharding after forward."""
    return run.parallel.sharding == "fsdp" and run.parallel.stage == 2


def kept_share(run: Run, ranks: int, *, trained: bool = False) -> float:
    """Return which share of what a rank would hold it keeps where data-parallel ranks split it.

    Experts that are spread over data-parallel ranks are there on fewer of them, and are split over so few only: Megatron-LM
    core/parallel_state.py, ``expert_data_parallel_size`` (core_r0.11.0).

    Args:
        run: the run.
        ranks: that split it, 1 where it is whole.
        trained: of what is trained and its state; adapters are taken to be no part of experts.
    """
    if run.parallel.expert == 1 or ranks == 1 or (trained and run.trainable < run.model.parameters):
        return 1 / ranks
    own = held(run)
    routed = own.experts / own.total if own.total else 0.0
    return (1 - routed) / ranks + routed / _copies_of_experts(run, ranks)


def _copies_of_experts(run: Run, ranks: int) -> int:
    """Return how many ranks hold the same experts: ``expert_data_parallel_size``, ranks that split matrices among them."""
    return max(1, ranks * run.parallel.tensor // (run.parallel.expert * run.parallel.expert_tensor))


def name_share(run: Run, ranks: int, *, trained: bool = False) -> str:
    """Return the words of `kept_share` in a component's arithmetic."""
    if ranks == 1:
        return ""
    if kept_share(run, ranks, trained=trained) == 1 / ranks:
        return f" / {ranks} ranks"
    return f" / {ranks} ranks, experts / {_copies_of_experts(run, ranks)}"


def in_flight(run: Run) -> int:
    """Return how many micro batches the first pipeline stage keeps activations of under one forward, one backward.

    Source: PipeDream-flush, arXiv 2006.09503 section 3.1: as many as there are stages, at most all micro batches of a step.
    """
    return max(1, min(run.parallel.pipeline, run.accumulation))
