"""Gradients: how many bytes all of them take on a rank, and what of them lives between micro batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.memory.closed_form.parallel import count_parts, held, kept_share, name_share

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

SOURCE = "ZeRO, arXiv 1910.02054 section 5.2; DeepSpeed v0.16.4 stage_1_and_2.py, stage3.py; torch FSDP"


class Gradients(NamedTuple):
    """Bytes of gradients on one rank at the instants of a step."""

    complete: float
    """After the last backward of a step, before the optimizer."""
    before: float
    """While the loss of the last micro batch is computed: what earlier micro batches have left."""
    persistent: float
    """Allocated for the whole run."""
    at_step: float | None = None
    """While the optimizer steps, where that is less than after the last backward."""


class Trained(NamedTuple):
    """Trainable parameters of one dtype on this rank, before data-parallel sharding."""

    number: float
    bytes_each: float
    """Bytes of a parameter and of its gradient."""


def trained_here(run: Run) -> tuple[Trained, ...]:
    """Return trainable parameters by dtype: adapters may have another than modules trained in full beside them."""
    split = count_parts(run)
    if run.trainable >= run.model.parameters:
        return (Trained(held(run).total, run.precision.gradient),)
    if not run.adapters:
        return (Trained(run.trainable / split, run.precision.gradient),)
    each = max(run.precision.gradient, run.copy_bytes) if run.copied else run.precision.gradient
    beside = Trained((run.trainable - run.adapters) / split, each)
    return (Trained(run.adapters / split, run.adapter_bytes), *((beside,) if beside.number else ()))


def count_trained(run: Run) -> float:
    """Return how many trainable parameters this rank has before data-parallel sharding."""
    return sum(part.number for part in trained_here(run))


def gradients(run: Run) -> Gradients:
    """Return bytes of gradients.

    Gradients have the dtype of their parameters. ZeRO-3 keeps a flat buffer of this rank's share from the start; ZeRO-2 and
    FSDP keep the share from the first backward to the step. Others hold them in full, and set them to None after the step
    (``zero_grad(set_to_none=True)``, torch's default since 2.0). Megatron makes contiguous buffers for all of them once, whole
    with the distributed optimizer too (core/distributed/param_and_grad_buffer.py, core_r0.11.0).
    """
    parallel = run.parallel
    full = sum(part.number * part.bytes_each for part in trained_here(run))
    if parallel.sharding == "megatron":
        apart = run.precision.stored * count_trained(run) if run.gradients_apart else 0.0
        buckets = apart if parallel.data * parallel.context > 1 else 0.0  # of torch's DDP, for all of the run
        if run.gradients_apart and run.precision.gradient <= run.precision.stored:
            return Gradients(full + buckets, buckets + (full if run.accumulation > 1 else 0.0), buckets)
        return Gradients(full + apart + buckets, full + buckets, full + buckets, full + buckets)
    if run.in_backward:
        own = held(run)
        largest = max((own.blocks + own.experts) / max(1, own.layers), own.embedding)
        return Gradients(full if run.adapters else min(full, run.precision.gradient * largest), 0.0, 0.0)
    earlier = run.accumulation > 1 and not run.first_batch
    share = full * kept_share(run, parallel.shard, trained=True)
    if parallel.sharding == "zero" and parallel.stage >= 2:
        part = 0.0 if run.offload_optimizer else share  # offloaded: stage3.py makes the buffer on the host
        if parallel.stage == 3:
            return Gradients(part, part, part)
        return Gradients(part, part if earlier else 0.0, 0.0)
    if parallel.sharding == "fsdp" and parallel.stage >= 2:
        part = 0.0 if run.offload_optimizer else share
        between = max(part, run.unsharded_gradients * count_trained(run)) if run.no_sync else part
        whole = run.first_batch and run.accumulation > 1  # of a micro batch that is no step's last
        return Gradients(between if whole else part, between if earlier else 0.0, 0.0)
    release = run.release("torch")
    zeroed = release is not None and release < (2, 0)  # ``zero_grad`` filled them with zeros
    return Gradients(full, full if earlier or zeroed else 0.0, 0.0)


def of_block_and_embedding(run: Run) -> float:
    """Return bytes of gradients that do not exist yet while the first block is differentiated: its own and the embedding's."""
    if run.parallel.stage >= 2 or run.trainable < run.model.parameters or run.accumulation > 1:
        return 0.0
    own = held(run)
    return run.precision.gradient * ((own.blocks + own.experts) / max(1, own.layers) + own.embedding)


def component(run: Run, count: float) -> tuple[Component, ...]:
    """Return the component for gradients of so many bytes."""
    if count <= 0:
        return ()
    facts = ("model.trainable_parameters", "training.sharding", "training.zero_stage")
    parts = trained_here(run)
    if run.unsharded_gradients and count == run.unsharded_gradients * count_trained(run):
        words = f"{run.unsharded_gradients:g} B × {count_trained(run):,.0f}, whole until the last micro batch (no_sync)"
        source = "accelerate accelerator.py no_sync; torch FSDP"
        return (Component("gradients", "gradients", exactly(count), words, source, run.role, facts),)
    whole = sum(part.number * part.bytes_each for part in parts)
    share = name_share(run, run.parallel.shard, trained=True) if count < whole else ""
    words = " + ".join(f"{part.bytes_each:g} B × {part.number:,.0f}" for part in parts) + share
    if count > whole:  # beside what they are added to
        words += f" + {count - whole:,.0f} B in the dtype of the parameters"
    return (Component("gradients", "gradients", exactly(count), words, SOURCE, run.role, facts),)


def makes_unit_gradients(run: Run) -> bool | None:
    """Tell whether a unit of FSDP1 gets the gradient of all of its parameters; None where nobody knows."""
    parallel = run.parallel
    if parallel.sharding != "fsdp" or parallel.fsdp != 1 or parallel.stage < 2 or parallel.shard == 1:
        return False
    return True if run.trainable >= run.model.parameters else run.mixed_units


def beside(run: Run, *, between: bool, blocks: int | None = None) -> tuple[Component, ...]:
    """Return gradients that depend on how FSDP's units and the loop are made, beside those of trained parameters.

    A unit of FSDP1 has one flat parameter: where any part of it is trained, backward makes and reduces the gradient of all of it.
    Under ``no_sync`` nothing is reduced and it stays whole, in the compute dtype (torch 2.1.0 and 2.15.0
    distributed/fsdp/flat_param.py, _runtime_utils.py). What nobody says is in the high bound alone.

    Args:
        run: the run.
        between: while micro batches follow each other, not after the last backward of a step.
        blocks: how many blocks have them; all of them unless said.
    """
    parallel = run.parallel
    if parallel.sharding != "fsdp" or parallel.stage < 2 or parallel.shard == 1:
        return ()
    earlier = run.accumulation > 1
    waits = between and earlier and run.no_sync is not False
    own = held(run)
    parts = []
    if run.mixed_units is not False:
        count = (own.blocks + own.experts) * (1 if blocks is None else blocks / max(1, own.layers))
        split = run.precision.frozen * count / parallel.shard if earlier or not between else 0.0
        whole = max(split, run.precision.compute * count) if waits else split
        sure = run.mixed_units is True
        usual = (whole if run.no_sync else split) if sure else 0.0
        size = Size(int(usual), int(usual), int(whole))
        words = f"{run.precision.compute:g} B × {count:,.0f}, whole until the last micro batch (no_sync)"
        if not waits or not run.no_sync:
            words = f"{run.precision.frozen:g} B × {count:,.0f} / {parallel.shard} ranks"
        facts = ("training.fsdp_wraps_frozen_apart", "training.fsdp_use_orig_params", "training.sync_each_batch")
        name = "gradients of frozen parameters"
        parts.append(Component(name, "gradients", size, words, "torch FSDP flat_param.py", run.role, facts))
    if waits and run.no_sync is None:
        size = Size(0, 0, int(run.unsharded_gradients * count_trained(run)))
        words = f"{run.unsharded_gradients:g} B × {count_trained(run):,.0f}, if micro batches run under no_sync"
        stated = ("training.sync_each_batch",)
        parts.append(Component("whole gradients", "gradients", size, words, "torch FSDP", run.role, stated))
    return tuple(part for part in parts if part.size.high)


def largest_unsharded(run: Run) -> Size:
    """Return gradients that live whole for a moment although they are sharded afterwards: one block's, or the head's."""
    if run.parallel.stage < 2:
        return exactly(0)
    own = held(run)
    if run.adapters:
        each, block = run.adapter_bytes, run.adapters / run.model.layers
        return exactly(each * block)
    each = max(run.precision.compute, run.precision.reduce if run.parallel.sharding == "fsdp" else 0)
    block = (own.blocks + own.experts) / max(1, own.layers)
    largest = max(block, own.lm_head or own.embedding)
    return Size(int(each * block), int(each * largest), int(2 * each * largest))
