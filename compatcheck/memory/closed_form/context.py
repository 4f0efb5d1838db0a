"""Device memory outside of torch's allocator: the CUDA context and NCCL, other processes; and cuBLAS workspaces inside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

CONTEXT = Size(287_047_680, 500 * MIB, 666_632_192)
"""CUDA context with the first kernels loaded. Low and high: https://github.com/pytorch/pytorch/pull/85692 (lazy and eager module
loading); expected: between the two, for kernels are loaded as they are used."""
NCCL = Size(100 * MIB, 400 * MIB, 1200 * MIB)
"""NCCL's buffers and channels in a job of several ranks; vLLM reports 0.39 GiB outside of torch on two ranks
(https://github.com/vllm-project/vllm/issues/11251), the context included in it."""
WORKSPACE_HOPPER = 32 * MIB
WORKSPACE = 8_519_680
"""cuBLAS workspace of one handle and stream: CublasHandlePool.cpp, 32 MiB on compute capability 9, else :4096:2:16:8."""


def context(run: Run) -> tuple[Component, ...]:
    """Return what the device holds beside the allocator's memory."""
    source = "pytorch pull 85692; vLLM issue 11251"
    parts = [Component("CUDA context", "context", CONTEXT, "kernels are loaded as they are used", source, run.role, ())]
    if run.parallel.world > 1:
        parts.append(
            Component("NCCL", "context", NCCL, "buffers and channels", source, run.role, ("hardware.world_size",))
        )
    if run.other_resident:
        words = "stated"
        facts = ("run.other_resident_bytes",)
        parts.append(
            Component("other processes", "other", exactly(run.other_resident), words, "stated", run.role, facts)
        )
    return tuple(parts)


def workspaces(run: Run) -> tuple[Component, ...]:
    """Return cuBLAS workspaces, which are in the allocator: one for the forward's thread and one for the backward's."""
    each = WORKSPACE_HOPPER if run.capability is not None and 9 <= run.capability < 10 else WORKSPACE
    count = 2 if run.optimizer is not None else 1
    facts = ("hardware.compute_capability",)
    return (
        Component("cuBLAS workspace", "workspace", exactly(each * count), f"{count} × {each:,} B",
                  "CublasHandlePool.cpp; pytorch issue 95668", run.role, facts),
    )  # fmt: skip
