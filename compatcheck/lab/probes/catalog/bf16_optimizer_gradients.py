"""Bytes of 16-bit gradients that DeepSpeed's BF16 optimizer still holds when a backward pass begins.

A stack of square bfloat16 matrices is trained by an engine at stage 0, or at stage 1 with float32 accumulation: both take
``BF16_Optimizer``, which adds each gradient to a float32 buffer made with the engine. What is live when the gradient of the loss
arrives is taken in a first backward, before which there was none, and in the next: the difference is what the first one left.
Neither is the last of a step, so that both reduce nothing; with ``micro_batches`` 1 both are. Plain SGD has no states.

Prediction: 0. Their values are in the buffer, and backward makes new ones. Until 0.16.4 ``backward`` begins with
``clear_lp_grads()``, which sets them to None; from 0.16.5 on it fills them with zeros, and all lie beside the activations: 2
bytes for each trained weight. ``peak_growth_bytes`` is by how much the peak of backward is higher than in the first: all of it
where activations (``rows``) are most of the peak, one matrix where they are nothing. Source: deepspeed/runtime/bf16_optimizer.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 1,
    "zero_stage": 0,
    "micro_batches": 3,
    "layers": 4,
    "hidden_size": 256,
    "rows": 2,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {"zero_stage": 1, "micro_batches": 1},
    {"zero_stage": 1, "micro_batches": 1, "layers": 6, "hidden_size": 128, "rows": 2048},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"zero_stage": (0, 1)}
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2), "micro_batches": (1, 3)}
METRIC = "gradient_bytes"
COMPARED = ("peak_growth_bytes",)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing: what was accumulated is let go."""
    return {"gradient_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return what a loss and its like take: a few numbers."""
    return 256


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    elements = parameters["layers"] * parameters["hidden_size"] ** 2
    return {
        "model.parameters": elements,
        "model.trainable_parameters": elements,
        "training.zero_stage": parameters["zero_stage"],
        "training.param_dtype": "bfloat16",
        "training.mixed_precision": "bf16",
        "training.grad_accum_dtype": "float32",
        "training.gradient_accumulation_steps": parameters["micro_batches"],
        "training.offload_optimizer": None,
        "training.peft": None,
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Make one step, then the two passes, and take the difference of what is live when each is differentiated."""
    import functools

    import torch
    from torch import nn

    deepspeed = recorder.deepspeed()
    hidden = parameters["hidden_size"]
    layers = (nn.Linear(hidden, hidden, bias=False) for _ in range(parameters["layers"]))
    model = nn.Sequential(*layers).bfloat16()
    configuration = {
        "train_micro_batch_size_per_gpu": parameters["rows"],
        "gradient_accumulation_steps": parameters["micro_batches"],
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": parameters["zero_stage"]},
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)
    try:
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    except NotImplementedError as error:
        recorder.unsupported(f"this release refuses such a run: {error}")
    if type(engine.optimizer).__name__ != "BF16_Optimizer":
        recorder.unsupported("this release gives such a run another optimizer")
    begun, peaks = [], []
    # A whole step is made first: the first product of a shape makes oneDNN keep scratch memory for good.
    for number in range(parameters["micro_batches"] + 2):
        if number == parameters["micro_batches"]:
            for weight in model.parameters():
                weight.grad = None
        loss = engine(torch.randn(parameters["rows"], hidden, dtype=torch.bfloat16)).float().sum()
        loss.register_hook(lambda _: begun.append(recorder.live_bytes()))
        before = recorder.live_bytes()
        _, peak, _ = recorder.measure(functools.partial(engine.backward, loss))
        peaks.append(before + peak)
        del loss
        engine.step()
    recorder.result("gradient_bytes", begun[-1] - begun[-2])
    recorder.result("peak_growth_bytes", peaks[-1] - peaks[-2])
    recorder.result("bytes_per_weight", (begun[-1] - begun[-2]) / (parameters["layers"] * hidden**2))
