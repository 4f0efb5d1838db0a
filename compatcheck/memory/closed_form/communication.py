"""Buffers of collectives: DDP's buckets, DeepSpeed's reduce and all-gather buckets, FSDP's reduce-scatter input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.memory.closed_form.gradients import count_trained, largest_unsharded, trained_here

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

MORE_BUCKETS = 2
"""ZeRO-1 and 2 make a second bucket with ``overlap_comm``; our measurements: probe zero_reduce_buffers."""


def lasting_buffers(run: Run) -> tuple[Component, ...]:
    """Return buffers that stay from one step to the next.

    DDP: all gradients once more, unless they are views into its buckets (reducer.cpp initialize_buckets; probe ddp_buckets).
    ZeRO-3: one reduce bucket (stage3.py, ``__ipg_bucket_flat_buffer``; probe zero_reduce_buffers).
    """
    parallel = run.parallel
    if run.optimizer is None:
        return ()
    if parallel.sharding == "ddp" and parallel.data > 1 and not run.bucket_view:
        parts = trained_here(run)
        size = exactly(sum(part.number * part.bytes_each for part in parts))
        words = " + ".join(f"{part.bytes_each:g} B × {part.number:,.0f}" for part in parts)
        source = "torch reducer.cpp; probe ddp_buckets"
        facts = ("training.gradient_as_bucket_view",)
        return (Component("DDP buckets", "communication", size, words, source, run.role, facts),)
    if parallel.sharding == "zero" and parallel.stage == 3:
        size = exactly(run.precision.stored * run.reduce_bucket)
        return (
            Component("reduce bucket", "communication", size, f"{run.precision.stored:g} B × {run.reduce_bucket:,}",
                      "DeepSpeed stage3.py; probe zero_reduce_buffers", run.role, ("training.reduce_bucket_size",)),
        )  # fmt: skip
    return ()


def backward_buffers(run: Run) -> tuple[Component, ...]:
    """Return buffers that live while gradients are reduced."""
    parallel = run.parallel
    release = run.release("deepspeed")
    if parallel.sharding == "zero" and parallel.stage == 1 and release is not None and release < (0, 13):
        return ()  # engine.py takes contiguous_gradients and overlap_comm for false there (#4887)
    if parallel.sharding == "zero" and parallel.stage in {1, 2}:
        count = run.reduce_bucket * (MORE_BUCKETS if run.overlap else 1)
        accumulated = parallel.stage == 1 and release is not None and release >= (0, 19, 8)
        # stage_1_and_2.py setup_buckets() of 0.19.7 and 0.19.8
        each = run.precision.gradient if accumulated else run.precision.stored
        return (
            Component("reduce buckets", "communication", exactly(each * count), f"{each:g} B × {count:,.0f}",
                      "DeepSpeed stage_1_and_2.py; probe zero_reduce_buffers", run.role,
                      ("training.reduce_bucket_size", "training.overlap_comm")),
        )  # fmt: skip
    if parallel.stage >= 2 and parallel.shard > 1:
        unsharded = largest_unsharded(run)
        return (
            Component("gradients not yet reduced", "communication", unsharded, "one block's, or the head's",
                      "FSDP _fsdp_collectives.py foreach_reduce; DeepSpeed stage3.py", run.role, ("training.sharding",)),
        )  # fmt: skip
    return ()


def step_buffers(run: Run) -> tuple[Component, ...]:
    """Return what gathering updated parameters needs after the step: nothing at ZeRO-1 and 2, which gather in place."""
    if run.parallel.sharding == "zero" and run.parallel.stage in {1, 2}:
        size = Size(0, 0, int(run.precision.stored * min(run.gather_bucket, count_trained(run))))
        return (
            Component("all-gather bucket", "communication", size, "in place, or one bucket",
                      "DeepSpeed stage_1_and_2.py all_gather_dp_groups", run.role, ("training.allgather_bucket_size",)),
        )  # fmt: skip
    return ()
