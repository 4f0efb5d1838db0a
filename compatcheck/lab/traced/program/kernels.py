"""Which kernel ``scaled_dot_product_attention`` takes on a GPU, and what kernels take beside their results.

On a CPU, where the trace runs, torch would choose among the kernels of a CPU. The conditions are those of
``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (``can_use_flash_attention``, ``can_use_mem_efficient_attention``,
``can_use_cudnn_attention``, ``check_prefer_cudnn_attention``) for dense tensors on NVIDIA GPUs, as of torch 2.13.
"""

from __future__ import annotations

from typing import NamedTuple

FLASH, EFFICIENT, CUDNN, MATH = "flash", "efficient", "cudnn", "math"
KERNELS = (FLASH, EFFICIENT, CUDNN, MATH)


class Device(NamedTuple):
    """What the choice depends on beside the call."""

    capability: tuple[int, int] = (8, 0)
    """Compute capability."""
    cudnn: int | None = None
    """cuDNN's version as ``torch.backends.cudnn.version()`` gives it, 91501; None is not known."""
    torch: tuple[int, int] = (2, 13)
    enabled: tuple[str, ...] = KERNELS
    """Kernels that ``torch.backends.cuda.enable_*_sdp`` has left on."""


class Call(NamedTuple):
    """One call of ``scaled_dot_product_attention``."""

    dtype: str
    """``bfloat16``, ``float16``, ``float32``, …"""
    query: tuple[int, int, int, int]
    """Batch, heads, length, head size."""
    key: tuple[int, int, int, int]
    value_size: int
    """Head size of the values."""
    mask: bool = False
    causal: bool = False
    dropout: float = 0.0
    gradients: bool = True
    grouped: bool = False
    """``enable_gqa``."""


def choose(call: Call, device: Device) -> str:
    """Return the kernel, one of `KERNELS` (``select_sdp_backend``)."""
    order = (CUDNN, FLASH, EFFICIENT, MATH) if _prefers_cudnn(device) else (FLASH, EFFICIENT, MATH)
    usable = {FLASH: _flash, EFFICIENT: _efficient, CUDNN: _cudnn}
    for kernel in order:
        if kernel in device.enabled and (kernel == MATH or usable[kernel](call, device)):
            return kernel
    return MATH


def _prefers_cudnn(device: Device) -> bool:
    # torch 2.10; https://github.com/pytorch/pytorch/issues/169849 for the version
    return (
        device.torch >= (2, 10)
        and device.cudnn is not None
        and device.cudnn > 91500
        and device.capability[0] in {9, 10}
        and device.capability[1] in {0, 3}
    )


def _half(call: Call, device: Device) -> bool:
    return call.dtype == "float16" or (call.dtype == "bfloat16" and device.capability >= (8, 0))


def _heads_fit(call: Call, *, supports_groups: bool) -> bool:
    """Tell whether the numbers of heads may be as they are (``check_batch_size_and_num_heads_dense``)."""
    if call.query[0] != call.key[0]:
        return False
    heads, groups = call.query[1], call.key[1]
    return heads == groups or (call.grouped and supports_groups and heads % groups == 0)


def _flash(call: Call, device: Device) -> bool:
    size = call.query[3]
    if not (8, 0) <= device.capability <= (12, 1) or not _half(call, device) or call.mask:
        return False
    if not size == call.key[3] == call.value_size or size > 256:
        return False
    if call.causal and call.query[2] != call.key[2]:
        return False
    consumer = (8, 6) <= device.capability <= (8, 9) or (12, 0) <= device.capability <= (12, 1)
    if call.gradients and consumer and size > 192 and (call.dropout > 0 or size <= 224):
        return False
    return _heads_fit(call, supports_groups=device.torch >= (2, 5))


def _efficient(call: Call, device: Device) -> bool:
    if not (5, 0) <= device.capability <= (12, 1) or not (_half(call, device) or call.dtype == "float32"):
        return False
    half = call.dtype != "float32"
    tensor_cores = device.capability >= (8, 0) or (device.capability >= (7, 0) and half)
    alignment = 4 if device.capability >= (8, 0) else 1
    if tensor_cores:
        alignment = max(alignment, 8 if half else 4)
    size = call.query[3]
    if size != call.key[3] or size % alignment or call.value_size % alignment:
        return False
    # https://github.com/pytorch/pytorch/pull/191085
    return _heads_fit(call, supports_groups=device.torch >= (2, 14))


def _cudnn(call: Call, device: Device) -> bool:
    size = call.query[3]
    limit = 192 if (size, call.value_size) == (192, 128) else 128
    if not _half(call, device) or size > limit or call.value_size > limit or size % 8 or call.value_size % 8:
        return False
    return call.key[2] > 1 and _heads_fit(call, supports_groups=True)


def flash_backward_bytes(
    batch: int, heads: int, kv_heads: int, query_length: int, key_length: int, head_size: int, element: int
) -> tuple[int, ...]:
    """Return what flash attention's backward pass takes and gives back: float32 sums of dq and rows, dk and dv per head.

    Source: ``mha_bwd`` in csrc/flash_attn/flash_api.cpp of flash-attention (pytorch has a copy of it in
    aten/src/ATen/native/transformers/cuda/flash_attn): ``softmax_d``, ``dq_accum``, ``dk_expanded``, ``dv_expanded``.
    """
    rows = -(-query_length // 128) * 128
    multiple = 32 if head_size <= 128 else 64
    width = -(-head_size // multiple) * multiple
    taken = [4 * batch * heads * rows, 4 * batch * rows * heads * width]
    if heads != kv_heads:
        taken += [element * batch * key_length * heads * head_size] * 2
    return tuple(taken)


def matrix_workspace_bytes(capability: tuple[int, int]) -> int:
    """Return cuBLAS's workspace for one thread and stream, taken from the allocator and kept.

    Source: ``parseChosenWorkspaceSize`` in aten/src/ATen/cuda/CublasHandlePool.cpp: ``:4096:2:16:8``, and 32 MiB on compute
    capability 9 (and 10 and 12 since https://github.com/pytorch/pytorch/pull/175344).
    """
    return 32 * 2**20 if capability[0] in {9, 10, 12} else (2 * 4096 + 8 * 16) * 1024
