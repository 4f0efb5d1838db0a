"""Bytes per attention score of SDPA's math kernel, which stands in where no fused kernel accepts a call.

For GPUs, and for every byte of the allocator, those inside of operators included; a CPU can stand in. What masks, grouped
heads and a fused kernel change, as operators return it and on fake tensors too, is measured by sdpa_math_cpu.

The math kernel is forced with ``sdpa_kernel`` and run at three lengths, S, 2 S and 3 S; what grows with the length
alone drops out of the second difference of the peaks, which is 2 x bytes per score x scores(S), scores(S) = batch x
heads x S x S.

Prediction. From torch 2.5 16-bit queries, keys and values are cast to float32 first, so a score has 4 bytes in any
dtype. Forward: the product of queries and keys 4, its softmax 4, and inside ``_safe_softmax`` the comparison with
minus infinity 1: 9. Backward: the softmax 4, kept, its gradient 4 and the gradient of the product 4: 12; what the
forward pass keeps is in it. The kernel is composed of ordinary operators, so that a CPU takes the same; on CUDA the
products take cuBLAS workspaces, which do not grow with the length.

Sources: _scaled_dot_product_attention_math in
https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/transformers/attention.cpp;
https://github.com/pytorch/pytorch/pull/128922 (the cast, 2.5). Reports from GPUs: 9.3 to 9.6 forward
(https://github.com/Comfy-Org/ComfyUI/pull/15135), 16.2 with backward
(https://github.com/intel/torch-xpu-ops/issues/2390, an older release). On CUDA derived by reading; `compatcheck probe
list` says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda", "cpu")
ACCOUNTING = "allocator"
# A head as wide as the sequence is long would move the peak to another operator, and the second difference with it.
DEFAULTS: Mapping[str, Any] = {
    "of": "forward",
    "dtype": "bfloat16",
    "batch": 2,
    "heads": 4,
    "head_dim": 256,
    "length": 512,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"of": "backward"},
    {"dtype": "float16", "heads": 8, "head_dim": 128},
    {"dtype": "float32", "of": "backward", "heads": 8, "head_dim": 128},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"of": ("forward", "backward"), "dtype": ("bfloat16", "float16", "float32")}
METRIC = "bytes_per_score"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per score."""
    values = {"forward": 9.0, "backward": 12.0}
    return {
        "bytes_per_score": values[parameters["of"]],
        "forward_bytes_per_score": values["forward"],
        "backward_bytes_per_score": values["backward"],
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return a fiftieth of a byte: CUDA rounds small tensors to 512 bytes (sizes are such that it rounds no large one)."""
    return 0.02


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smallest length in the vocabulary's names."""
    return {
        "model.attn_implementation": "sdpa",
        "model.num_attention_heads": parameters["heads"],
        "model.num_key_value_heads": parameters["heads"],
        "model.head_dim": parameters["head_dim"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": parameters["dtype"],
        "run.attention_mask": "none",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward and backward at three lengths."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)

    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        recorder.unsupported("needs torch.nn.attention.sdpa_kernel, torch >= 2.3")
    batch, heads, width = parameters["batch"], parameters["heads"], parameters["head_dim"]
    dtype = getattr(torch, parameters["dtype"])
    found: dict[str, list[int]] = {"forward": [], "backward": []}
    for times in (0, 1, 2, 3):  # the first, at the smallest length, takes what stays: workspaces of matrix products
        length = max(times, 1) * parameters["length"]
        query, key, value = (
            torch.randn(batch, heads, length, width, dtype=dtype, device=recorder.device, requires_grad=True)
            for _ in range(3)
        )

        def attend(query: Any = query, key: Any = key, value: Any = value) -> Any:
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(query, key, value)

        with recorder.phase(f"forward-{length}"):
            output, forward, kept = recorder.measure(attend)
        held = [output.sum()]
        del output

        def go_back(held: list[Any] = held) -> None:
            held.pop().backward()

        with recorder.phase(f"backward-{length}"):
            _, backward, _ = recorder.measure(go_back)
        if times:
            found["forward"].append(forward)
            found["backward"].append(kept + backward)
        del query, key, value, attend, held, go_back
    scores = batch * heads * parameters["length"] ** 2
    for name, (small, middle, large) in found.items():
        slope = (large - 2 * middle + small) / (2 * scores)
        recorder.result(f"{name}_bytes_per_score", slope)
        if name == parameters["of"]:
            recorder.result("bytes_per_score", slope)
