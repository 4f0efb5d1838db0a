"""Extra float32 accumulators of FlashAttention 2's deterministic backward pass.

``flash_attn_func`` runs forward and backward twice, with ``deterministic=False`` and as given; the difference of the
backward peaks is what determinism costs.

Prediction. Without it, all thread blocks add to one dQ accumulator of float32 [batch, S, heads, head_dim], S rounded
up to 128 rows and head_dim to 32 (from 2.8 to 64 above 128). With it there are as many as it takes for batch x heads
thread blocks to fill the device: ceil(multiprocessors / (batch x heads)). ``extra_bytes`` is therefore (splits - 1) x
4 x batch x S x heads x head_dim. ``multiprocessors`` 0 takes the device's number, which a prediction made beforehand
cannot know; ``unexplained_bytes`` is what is left of the difference after the formula with the device's own number,
0.

Sources: mha_bwd in https://github.com/Dao-AILab/flash-attention/blob/v2.8.3/csrc/flash_attn/flash_api.cpp (dq_accum,
nsplits) and of v2.4.1, the first release that has it. Derived by reading; `compatcheck probe list` says whether it
was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("flash-attn",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "dtype": "bfloat16",
    "batch": 1,
    "heads": 8,
    "kv_heads": 8,
    "head_dim": 128,
    "length": 2048,
    "deterministic": True,
    "multiprocessors": 0,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"heads": 32, "kv_heads": 8, "length": 1024},
    {"head_dim": 64, "length": 1000},
    {"batch": 8, "heads": 32},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"dtype": ("bfloat16", "float16")}
METRIC = "unexplained_bytes"


def _accumulator(parameters: Mapping[str, Any]) -> int:
    rows = -(-parameters["length"] // 128) * 128
    step = 32 if parameters["head_dim"] <= 128 else 64
    width = -(-parameters["head_dim"] // step) * step
    return int(4 * parameters["batch"] * rows * parameters["heads"] * width)


def _extra(parameters: Mapping[str, Any], multiprocessors: int) -> int:
    if not parameters["deterministic"]:
        return 0
    blocks = parameters["batch"] * parameters["heads"]
    return (-(-multiprocessors // blocks) - 1) * _accumulator(parameters)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that the formula explains the difference, and the difference where the device's size is given."""
    predicted: dict[str, float] = {"unexplained_bytes": 0}
    if parameters["multiprocessors"] or not parameters["deterministic"]:
        predicted["extra_bytes"] = _extra(parameters, parameters["multiprocessors"])
    return predicted


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: accumulators are multiples of the allocator's 512 bytes."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    described = {
        "model.attn_implementation": "flash_attention_2",
        "model.num_attention_heads": parameters["heads"],
        "model.num_key_value_heads": parameters["kv_heads"],
        "model.head_dim": parameters["head_dim"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": parameters["dtype"],
        "training.full_determinism": parameters["deterministic"],
        "env.FLASH_ATTENTION_DETERMINISTIC": str(int(parameters["deterministic"])),
    }
    if parameters["multiprocessors"]:
        described["hardware.multiprocessors"] = parameters["multiprocessors"]
    return described


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Go backward without and with determinism."""
    import inspect

    import torch
    from flash_attn import flash_attn_func

    if "deterministic" not in inspect.signature(flash_attn_func).parameters:
        recorder.unsupported("needs flash-attn >= 2.4.1, where the backward pass can be deterministic")
    multiprocessors = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    if parameters["multiprocessors"] and parameters["multiprocessors"] != multiprocessors:
        recorder.unsupported(f"this device has {multiprocessors} multiprocessors, not {parameters['multiprocessors']}")
    batch, length, width = parameters["batch"], parameters["length"], parameters["head_dim"]
    dtype = getattr(torch, parameters["dtype"])
    peaks = {}
    for turn, deterministic in enumerate((False, False, parameters["deterministic"])):  # the first takes what stays
        query, key, value = (
            torch.randn(batch, length, heads, width, dtype=dtype, device=recorder.device, requires_grad=True)
            for heads in (parameters["heads"], parameters["kv_heads"], parameters["kv_heads"])
        )
        name = "deterministic" if deterministic else f"default-{turn}"
        with recorder.phase(f"forward-{name}"):
            output = flash_attn_func(query, key, value, causal=True, deterministic=deterministic)
        upstream = torch.ones_like(output)
        held = [output]
        del output

        def go_back(held: list[Any] = held, upstream: Any = upstream) -> None:
            torch.autograd.backward(held[0], upstream)

        with recorder.phase(f"backward-{name}"):
            _, peaks[turn], _ = recorder.measure(go_back)
        del query, key, value, upstream, held, go_back
    extra = peaks[2] - peaks[1]
    recorder.result("extra_bytes", extra)
    recorder.result("splits", -(-multiprocessors // (batch * parameters["heads"])))
    recorder.result("accumulator_bytes", _accumulator(parameters))
    recorder.result("unexplained_bytes", abs(extra - _extra(parameters, multiprocessors)))
    recorder.note(f"{multiprocessors} multiprocessors")
