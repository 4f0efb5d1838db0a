"""Which kernel scaled_dot_product_attention takes with grouped heads, a mask and wide heads, and what its scores cost.

The call is made as transformers makes it: ``enable_gqa`` where there are fewer key than query heads, an additive mask
of batch x 1 x S x S in the dtype of the queries for ``mask: padding`` (it is alive before and not counted),
``is_causal`` for ``mask: none``. Forward and backward run at three lengths, S, 2 S and 3 S; what grows with the
length alone drops out of the second difference of the peaks, 2 x what the scores of length S take. ``cudnn: false``
leaves cuDNN's kernel out, which else may step in where flash and memory-efficient refuse. ``before_ampere`` runs only
on GPUs below compute capability 8, which have neither flash nor cuDNN kernels.

Prediction. A healthy release has a fused kernel for every one of these calls, which keeps no scores: ``score_bytes``
is 0, and ``kernel`` is not 0 (0 math, 1 flash, 2 memory-efficient, 3 cuDNN, as `torch.nn.attention.SDPBackend` counts
them). Where there is none, the math kernel computes all batch x heads x S x S scores in float32, several times over.

Sources: the selection in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (flash takes no mask and no head wider
than 256; memory-efficient takes no unequal head counts before https://github.com/pytorch/pytorch/pull/191085, 2.14);
bytes from https://github.com/Comfy-Org/ComfyUI/pull/15135 (9 a score in forward) and
https://github.com/intel/torch-xpu-ops/issues/2390 (16 with backward). Derived by reading; `compatcheck probe list`
says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "mask": "padding",
    "dtype": "bfloat16",
    "batch": 4,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 64,
    "length": 512,
    "cudnn": True,
    "before_ampere": False,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"length": 1024, "head_dim": 128},
    {"mask": "none"},
    {"mask": "none", "head_dim": 512},
    {"kv_heads": 16},
    {"kv_heads": 16, "head_dim": 320},
    {"cudnn": False},
    {"dtype": "float32", "kv_heads": 16},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"mask": ("padding", "none"), "dtype": ("bfloat16", "float16", "float32")}
METRIC = "score_bytes"
ALONE = True  # it may switch a kernel off


def _scores(parameters: Mapping[str, Any]) -> int:
    return int(parameters["batch"] * parameters["heads"] * parameters["length"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return no scores."""
    return {"score_bytes": 0, "forward_score_bytes": 0, "falls_back_to_math": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return one byte per score: kernels keep sums by blocks of rows, and the narrowest score there is has 2 bytes."""
    return _scores(parameters)


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smallest length in the vocabulary's names."""
    described = {
        "model.attn_implementation": "sdpa",
        "model.num_attention_heads": parameters["heads"],
        "model.num_key_value_heads": parameters["kv_heads"],
        "model.head_dim": parameters["head_dim"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": parameters["dtype"],
        "run.attention_mask": parameters["mask"],
        # The call is made whatever transformers would decide.
        "env.TRANSFORMERS_SDPA_FORCE_GQA": "1",
    }
    if parameters["before_ampere"]:
        described["hardware.compute_capability"] = 7.5
    return described


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Attend forward and backward at three lengths."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)

    capability = torch.cuda.get_device_capability()
    if parameters["before_ampere"] and capability[0] >= 8:
        recorder.unsupported(
            f"this GPU has compute capability {capability[0]}.{capability[1]}; asked for is one below 8"
        )
    switch = getattr(torch.backends.cuda, "enable_cudnn_sdp", None)
    if not parameters["cudnn"] and switch is not None:
        switch(False)
    grouped = parameters["kv_heads"] != parameters["heads"]
    options: dict[str, Any] = {}
    if grouped:
        if "enable_gqa" not in (F.scaled_dot_product_attention.__doc__ or ""):
            recorder.unsupported("needs enable_gqa, torch >= 2.5")
        options["enable_gqa"] = True
    dtype = getattr(torch, parameters["dtype"])
    found: dict[str, list[int]] = {"forward": [], "whole": []}
    chosen = -1
    for times in (0, 1, 2, 3):  # the first, at the smallest length, takes what stays: workspaces of matrix products
        length = max(times, 1) * parameters["length"]
        query, key, value = (
            torch.randn(
                parameters["batch"], heads, length, parameters["head_dim"],
                dtype=dtype, device=recorder.device, requires_grad=True,
            )
            for heads in (parameters["heads"], parameters["kv_heads"], parameters["kv_heads"])
        )  # fmt: skip
        mask = None
        if parameters["mask"] == "padding":
            mask = torch.zeros(parameters["batch"], 1, length, length, dtype=dtype, device=recorder.device)
            mask[:, :, :, -length // 4 :] = torch.finfo(dtype).min
        elif parameters["mask"] == "none":
            options["is_causal"] = True

        def attend(query: Any = query, key: Any = key, value: Any = value, mask: Any = mask) -> Any:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)

        choose = getattr(torch, "_fused_sdp_choice", None)
        if choose is not None:
            chosen = int(choose(query, key, value, mask, 0.0, options.get("is_causal", False), **_only_gqa(options)))
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
            found["whole"].append(max(forward, kept + backward))
        del query, key, value, mask, attend, held, go_back
    for name, metric in (("forward", "forward_score_bytes"), ("whole", "score_bytes")):
        small, middle, large = found[name]
        recorder.result(metric, (large - 2 * middle + small) / 2)
    recorder.result(
        "bytes_per_score", (found["whole"][2] - 2 * found["whole"][1] + found["whole"][0]) / 2 / _scores(parameters)
    )
    if chosen >= 0:
        recorder.result("kernel", chosen)
        recorder.result("falls_back_to_math", int(chosen == 0))
        names = {0: "math", 1: "flash", 2: "memory-efficient", 3: "cuDNN"}
        name = names.get(chosen, str(chosen))
        recorder.note(f"{name} kernel on compute capability {capability[0]}.{capability[1]}")


def _only_gqa(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name == "enable_gqa"}
