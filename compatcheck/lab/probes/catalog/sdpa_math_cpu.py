"""Bytes per attention score of scaled_dot_product_attention: the math kernel against a fused one.

For machines without a GPU: it compares kernels and masks by the tensors that operators return, on fake tensors too. What
the math kernel takes on a GPU, by its allocator, is measured by sdpa_math_fallback.

``F.scaled_dot_product_attention`` is run under ``sdpa_kernel`` at three lengths, S, 2 S and 3 S. Whatever grows with
the length alone drops out of the second difference of the three peaks, which is 2 x bytes per score x scores(S);
scores(S) is batch x query heads x S x S. A mask that is passed is alive before and not counted. The CPU runs here;
which kernel CUDA would choose is another question: it falls back to math where a mask meets unequal head counts, or
heads wider than 256.

``grouped``: 4 query heads to a key head (``enable_gqa``, torch >= 2.5), which changes nothing here: keys and values
are repeated, and that is linear. ``mask``: ``none``, ``causal`` (a flag) or ``tensor`` (boolean, one for all heads).

Prediction, as operators return it; h = batch x heads:
- fused: no scores. A boolean mask becomes a bias in the dtype of the queries, b / h per score, kept for backward.
- math forward: the product of queries and keys 4 and either its sum with the bias or the softmax 4: 8. 16-bit queries
  are cast to float32 first (torch >= 2.5), so scores are 4 bytes in any dtype. The bias itself: 4 / h for the flag, b
  / h for a boolean mask.
- math backward: the softmax 4, kept, its gradient 4 and the gradient of the product 4: 12.
Inside ``_safe_softmax`` a boolean tensor of 1 more is alive, which the accounting by storages does not see; the
allocator does.

Source: _scaled_dot_product_attention_math in ATen/native/transformers/attention.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "fake")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "kernel": "math",
    "of": "forward",
    "mask": "none",
    "grouped": False,
    "dtype": "bfloat16",
    "batch": 2,
    "heads": 8,
    "length": 128,
    "head_dim": 16,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"length": 192, "dtype": "float32", "mask": "causal"},
    {"mask": "tensor", "grouped": True},
    {"mask": "tensor", "grouped": True, "of": "backward"},
    {"mask": "causal", "of": "backward", "dtype": "float32", "heads": 4},
    {"kernel": "fused", "mask": "causal", "grouped": True},
    {"kernel": "fused", "mask": "tensor", "of": "backward"},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "kernel": ("math", "fused"),
    "of": ("forward", "backward"),
    "mask": ("none", "causal", "tensor"),
    "dtype": ("bfloat16", "float32"),
}
METRIC = "bytes_per_score"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per score."""
    heads = parameters["batch"] * parameters["heads"]
    element = 2 if parameters["dtype"] == "bfloat16" else 4
    passed = element / heads if parameters["mask"] == "tensor" else 0
    if parameters["kernel"] == "fused":
        values = {"forward": passed, "backward": passed}
    else:
        values = {"forward": 8 + (4 / heads if parameters["mask"] == "causal" else passed), "backward": 12}
    return {
        "forward_bytes_per_score": values["forward"],
        "backward_bytes_per_score": values["backward"],
        "bytes_per_score": values[parameters["of"]],
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the second difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smallest length in the vocabulary's names."""
    heads = parameters["heads"]
    return {
        "model.attn_implementation": "sdpa",
        "model.num_attention_heads": heads,
        "model.num_key_value_heads": heads // 4 if parameters["grouped"] else heads,
        "model.head_dim": parameters["head_dim"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": parameters["dtype"],
        "training.param_dtype": parameters["dtype"],
        "run.attention_mask": "padding" if parameters["mask"] == "tensor" else "none",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward and backward at three lengths."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)

    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        recorder.unsupported("needs torch.nn.attention.sdpa_kernel, torch >= 2.3")
    options: dict[str, Any] = {}
    if parameters["grouped"]:
        if "enable_gqa" not in (F.scaled_dot_product_attention.__doc__ or ""):
            recorder.unsupported("needs enable_gqa, torch >= 2.5")
        options["enable_gqa"] = True
    kernel = SDPBackend.MATH if parameters["kernel"] == "math" else SDPBackend.FLASH_ATTENTION
    batch, heads, width = parameters["batch"], parameters["heads"], parameters["head_dim"]
    dtype = getattr(torch, parameters["dtype"])
    found: dict[str, list[int]] = {"forward": [], "backward": []}
    for times in (1, 2, 3):
        length = times * parameters["length"]

        def make(count: int, length: int = length) -> Any:
            return torch.randn(batch, count, length, width, dtype=dtype, device=recorder.device, requires_grad=True)

        query, key, value = (make(count) for count in (heads, *(heads // (4 if parameters["grouped"] else 1),) * 2))
        mask = None
        if parameters["mask"] == "tensor":
            mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=recorder.device).tril()

        def attend(query: Any = query, key: Any = key, value: Any = value, mask: Any = mask) -> Any:
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(
                    query, key, value, attn_mask=mask, is_causal=parameters["mask"] == "causal", **options
                )

        with recorder.phase("forward"):
            output, peak, kept = recorder.measure(attend)
        found["forward"].append(peak)
        held = [output.sum()]
        del output
        with recorder.phase("backward"):
            _, peak, _ = recorder.measure(lambda held=held: held.pop().backward())  # type: ignore[misc]  # bound at once
        found["backward"].append(kept + peak)
        del query, key, value, mask, attend, held
    scores = batch * heads * parameters["length"] ** 2
    for name, (small, middle, large) in found.items():
        slope = (large - 2 * middle + small) / (2 * scores)
        recorder.result(f"{name}_bytes_per_score", slope)
        if name == parameters["of"]:
            recorder.result("bytes_per_score", slope)
