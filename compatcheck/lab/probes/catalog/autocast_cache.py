"""16-bit copies of float32 weights that autocast keeps until its region ends.

``layers`` linear layers with float32 weights run under ``torch.autocast`` to bfloat16. The first use of a weight that
requires a gradient casts it, and the copy is cached until the outermost region ends, so that a second use costs
nothing. ``mode`` says how the forward runs:

- ``train``: the graph holds every copy for the input's gradient, cache or not.
- ``checkpoint``: nothing but inputs is to stay; the cache keeps all copies nevertheless.
- ``no_grad``: scoring, or a reference model: again nothing is to stay, and the cache keeps all copies.

Each is run with the cache and with ``cache_enabled=False``. W is the number of weights.

Prediction: `cached_bytes`, the difference of the two at the end of forward but inside the region, is 2 x W for
``checkpoint`` and ``no_grad``, 0 for ``train``, and 0 in every mode where weights are frozen (``trainable`` false),
because they are never cached. `left_bytes`, the same after the region has ended and with the output still held, is 0.
`backward_extra_bytes`, the difference of the peaks of a backward outside of the region, is 0: each checkpointed block
opens a region of its own, which ends with the block.

Source: cached_cast in aten/src/ATen/autocast_mode.cpp (float32 leaves that require a gradient).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "mode": "checkpoint",
    "trainable": True,
    "layers": 6,
    "hidden_size": 64,
    "batch": 2,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"layers": 4, "hidden_size": 96},
    {"mode": "no_grad"},
    {"mode": "no_grad", "trainable": False},
    {"mode": "train"},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"mode": ("checkpoint", "no_grad", "train")}
METRIC = "cached_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes of cached copies inside the region, after it and in backward."""
    kept = parameters["trainable"] and parameters["mode"] in {"checkpoint", "no_grad"}
    weights = parameters["layers"] * parameters["hidden_size"] ** 2
    values: dict[str, float] = {"cached_bytes": 2 * weights if kept else 0, "left_bytes": 0}
    return values if parameters["mode"] == "no_grad" else {**values, "backward_extra_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    weights = parameters["layers"] * parameters["hidden_size"] ** 2
    return {
        "model.parameters": weights,
        "model.parameters_in_blocks": weights,
        "model.trainable_parameters": weights if parameters["trainable"] else 0,
        "model.hidden_size": parameters["hidden_size"],
        "model.num_hidden_layers": parameters["layers"],
        "training.mixed_precision": "bf16",
        "training.param_dtype": "float32",
        "training.compute_dtype": "bfloat16",
        "training.gradient_checkpointing": parameters["mode"] == "checkpoint",
        "training.use_reentrant": False,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run the layers with and without the cache."""
    import contextlib

    import torch
    from torch.utils.checkpoint import checkpoint

    mode, width = parameters["mode"], parameters["hidden_size"]
    layers = [
        torch.nn.Linear(width, width, bias=False, device=recorder.device).requires_grad_(parameters["trainable"])
        for _ in range(parameters["layers"])
    ]
    inside, after, peaks = [], [], []
    for cached in (False, True):
        for layer in layers:
            layer.weight.grad = None
        # A leaf that requires a gradient would be cached like a weight; the result of an operation is not.
        value = torch.randn(parameters["batch"], width, device=recorder.device, requires_grad=True).mul(1)
        before = recorder.live_bytes()
        with contextlib.ExitStack() as stack:
            if mode == "no_grad":
                stack.enter_context(torch.no_grad())
            with recorder.phase("forward"), torch.autocast(recorder.device, torch.bfloat16, cache_enabled=cached):
                for layer in layers:
                    value = checkpoint(layer, value, use_reentrant=False) if mode == "checkpoint" else layer(value)
                inside.append(recorder.live_bytes() - before)
            after.append(recorder.live_bytes() - before)
        if mode != "no_grad":
            held = [value.float().sum()]
            del value
            with recorder.phase("backward"):
                peaks.append(recorder.measure(lambda held=held: held.pop().backward())[1])  # type: ignore[misc]  # bound at once
        value = None
    recorder.result("cached_bytes", inside[1] - inside[0])
    recorder.result("left_bytes", after[1] - after[0])
    if peaks:
        recorder.result("backward_extra_bytes", peaks[1] - peaks[0])
