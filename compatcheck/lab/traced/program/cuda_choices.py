"""Take the choices of a GPU while operators run on (fake) tensors that say they are on a CPU.

What differs and matters: the kernel of ``scaled_dot_product_attention``, the mask that dropout keeps, softmax of float16 in
float32, and which functions autocast runs in float32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from . import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tracker import Tracker

_FLOAT32 = frozenset(
    {
        *(
            "cross_entropy",
            "nll_loss",
            "binary_cross_entropy_with_logits",
            "mse_loss",
            "kl_div",
            "l1_loss",
            "smooth_l1_loss",
        ),
        *("layer_norm", "group_norm", "rms_norm", "norm", "softmax", "log_softmax", "logsumexp", "softplus"),
        *("pow", "__pow__", "__rpow__", "rsqrt", "exp", "log", "reciprocal", "tan", "cumsum", "prod", "sum"),
    }
)
"""Functions that autocast runs in float32 on CUDA and not on a CPU, as far as language models call them
(``AT_FORALL_FP32`` and ``AT_FORALL_FP32_SET_OPT_DTYPE`` in aten/src/ATen/autocast_mode.h)."""
_LOW = (torch.float16, torch.bfloat16)


class CudaChoices(TorchFunctionMode):
    """Runs functions of torch as they run on a GPU."""

    def __init__(self, device: kernels.Device) -> None:
        """Choose for a device."""
        super().__init__()
        self.device = device
        self.taken: dict[str, int] = {}
        """Attention kernel → calls."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._attend(*args, **kwargs)
        if name == "dropout":
            return _drop(func, args, kwargs)
        if name in _FLOAT32 and torch.is_autocast_enabled("cpu"):
            args = tuple(_widened(value) for value in args)
            kwargs = {key: _widened(value) for key, value in kwargs.items()}
        elif name == "softmax" and args[0].dtype is torch.float16 and kwargs.get("dtype") is torch.float32:
            # aten/src/ATen/native/SoftMax.cpp: no copy in float32 is made
            dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            return torch._softmax(args[0], dim, True)
        return func(*args, **kwargs)

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002 (torch's own signature)
        scale: float | None = None,
        enable_gqa: bool = False,  # noqa: FBT001, FBT002
    ) -> Any:
        """Attend with the kernel that a GPU would take (``scaled_dot_product_attention`` in transformers/attention.cpp)."""
        aten = torch.ops.aten
        if torch.is_autocast_enabled("cpu"):
            low = torch.get_autocast_dtype("cpu")
            query, key, value = (tensor.to(low) for tensor in (query, key, value))
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = attn_mask.to(low)
        gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        kernel = kernels.MATH
        if query.dim() == key.dim() == value.dim() == 4:
            call = kernels.Call(
                dtype=str(query.dtype)[6:],
                query=tuple(query.shape),
                key=tuple(key.shape),
                value_size=value.shape[-1],
                mask=attn_mask is not None,
                causal=is_causal,
                dropout=dropout_p,
                gradients=gradients,
                grouped=enable_gqa,
            )
            kernel = kernels.choose(call, self.device)
        self.taken[kernel] = self.taken.get(kernel, 0) + 1
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            # convert_boolean_attn_mask: an additive mask, made by every call
            zero = torch.full((), 0.0, dtype=query.dtype, device=query.device)
            attn_mask = torch.where(attn_mask, zero, -math.inf).to(query.dtype)
        if kernel == kernels.FLASH:
            size = query.shape[-1]
            rest = -size % 8
            if rest:  # pad_last_dim<8>
                scale = scale or size**-0.5
                query, key, value = (torch.nn.functional.pad(tensor, (0, rest)) for tensor in (query, key, value))
            output = aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, return_debug_mask=False, scale=scale
            )[0]
            return output[..., :size] if rest else output
        if kernel == kernels.CUDNN:
            return aten._scaled_dot_product_cudnn_attention(
                query, key, value, attn_mask, gradients, dropout_p, is_causal, return_debug_mask=False, scale=scale
            )[0]
        if kernel == kernels.EFFICIENT:
            if attn_mask is not None:
                attn_mask = _aligned(attn_mask).expand(*query.shape[:3], key.shape[2])
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, attn_mask, gradients, dropout_p, is_causal, scale=scale
            )[0]
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]


def _aligned(mask: Any) -> Any:
    """Return a mask whose rows begin at multiples of 8 elements (``preprocess_mask``, ``pad_bias``)."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    length = mask.shape[-1]
    return torch.nn.functional.pad(mask, (0, 8 - length % 8))[..., :length]


def _drop(func: Any, args: Any, kwargs: Any) -> Any:
    """Drop out as a GPU does, which keeps one byte an element (``native_dropout``) where a CPU keeps the noise itself."""
    values = dict(zip(("input", "p", "training", "inplace"), args))
    values.update({{"train": "training"}.get(name, name): value for name, value in kwargs.items()})
    probability = values.get("p", 0.5)
    if not values.get("training", True) or values.get("inplace") or not 0 < probability < 1:
        return func(*args, **kwargs)
    return torch.native_dropout(values["input"], probability, True)[0]


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _LOW else value


def make_inside(tracker: Callable[[], Tracker], capability: tuple[int, int]) -> Callable[[Any, Any], tuple[int, ...]]:
    """Return what operators take beside their results on a GPU; see `Tracker`.

    The first matrix product of the forward pass, and the first of a backward pass, whose thread has a cuBLAS handle of its own,
    take a workspace and keep it.
    """
    aten = torch.ops.aten
    products = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
    flash = aten._scaled_dot_product_flash_attention_backward.default
    softmax = aten._softmax_backward_data.default
    threads: set[bool] = set()

    def inside(func: Any, args: Any) -> tuple[int, ...]:
        if func in products:
            backward = torch._C._current_autograd_node() is not None
            if backward not in threads:
                threads.add(backward)
                tracker().keep(kernels.matrix_workspace_bytes(capability), "cuBLAS workspace")
        elif func is flash:
            _, query, key = args[:3]
            batch, heads, length, size = query.shape
            return kernels.flash_backward_bytes(
                batch, heads, key.shape[1], length, key.shape[2], size, query.element_size()
            )
        elif (
            func is softmax
        ):  # the product of gradient and result: aten/src/ATen/native/cuda/SoftMax.cu softmax_backward_cuda_out
            return (args[0].numel() * args[0].element_size(),)
        return ()

    return inside
