"""Staging buffers that offloading needs on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size
from compatcheck.memory.closed_form.gradients import count_trained

if TYPE_CHECKING:
    from compatcheck.memory.run import Run


def offload_buffers(run: Run) -> tuple[Component, ...]:
    """Return what of offloaded state is on the device for a moment.

    DeepSpeed copies gradients to the host bucket by bucket and updated parameters back: one bucket beside the reduce bucket
    (stage_1_and_2.py async_inplace_copy_grad_to_fp32_buffer_from_gpu, v0.16.4). FSDP moves one unit at a time.
    """
    if not run.offload_optimizer or run.parallel.sharding != "zero":
        return ()
    count = min(run.reduce_bucket, count_trained(run))
    size = int(run.precision.gradient * count)
    return (
        Component(
            "gradients on their way to the host",
            "communication",
            Size(0, 0, size),
            f"at most {run.precision.gradient:g} B × {count:,.0f}",
            "DeepSpeed v0.16.4 stage_1_and_2.py",
            run.role,
            ("training.offload_optimizer", "training.reduce_bucket_size"),
        ),
    )
