"""Device memory outside of torch's allocator: the CUDA context and NCCL, other processes; and cuBLAS workspaces inside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Component, Size, exactly
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from compatcheck.memory.run import Run

CONTEXT = Size(141_000_000, 477_000_000, 745_000_000)
"""CUDA context with the first kernels loaded. Low: a T4, torch 2.10 to 2.14 (fitcheck-llm 0.3.1, torch-preflight 0.5.0). High: an
RTX A6000 under torch 2.14 (vramcalc 0.1.2). Expected: the middle of lazy and eager module loading in
https://github.com/pytorch/pytorch/pull/85692, for kernels are loaded as they are used."""
EAGER_CONTEXT = Size(666_632_192, 837_000_000, 1_008_000_000)
"""The same where all kernels are loaded at once, as before torch 1.13: up to 1008 MB (https://github.com/pytorch/pytorch/issues/28394)."""
NCCL_TWO, NCCL_MORE = 544_000_000, 688_000_000
"""One communicator of two ranks, and of more, on A100s with NVLink: https://github.com/NVIDIA/nccl/issues/964."""
NCCL_LOW = 131_000_000
"""What vLLM found outside of torch on two ranks, 0.39 GiB (https://github.com/vllm-project/vllm/issues/11251), less a context."""
COMMUNICATORS = 2
"""Communicators in the high bound: FSDP, ZeRO and trainers make a second group for some collectives."""
WORKSPACE_HOPPER = 32 * MIB
WORKSPACE = 8_519_680
"""cuBLAS workspace of one handle and stream: CublasHandlePool.cpp, 32 MiB on compute capability 9, else :4096:2:16:8."""


def nccl_buffers(world: int) -> Size:
    """Return what NCCL holds in a job of so many ranks."""
    one = NCCL_TWO if world == 2 else NCCL_MORE
    return Size(NCCL_LOW, one, COMMUNICATORS * one)


def context(run: Run) -> tuple[Component, ...]:
    """Return what the device holds beside the allocator's memory."""
    source = "pytorch pull 85692; docs/memory-model.md, constants"
    release = run.release("torch")
    size = EAGER_CONTEXT if release is not None and release < (1, 13) else CONTEXT
    parts = [Component("CUDA context", "context", size, "kernels are loaded as they are used", source, run.role, ())]
    if run.parallel.world > 1:
        nccl = nccl_buffers(run.parallel.world)
        source = "NVIDIA/nccl issue 964; vLLM issue 11251"
        parts.append(Component("NCCL", "context", nccl, "a communicator", source, run.role, ("hardware.world_size",)))
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
