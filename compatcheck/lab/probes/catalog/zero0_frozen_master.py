"""Bytes per frozen parameter of DeepSpeed without ZeRO, where the optimizer was made from all parameters of a model.

Two stacks of square bfloat16 matrices, one twice as deep as the other, all frozen but a small one, are each given an engine at
stage 0 and trained for two steps; what each leaves alive is measured with gradients consumed and activations gone. The
difference belongs to the frozen parameters of the deeper half: constants cancel.

Prediction: 2 bytes, the weights themselves. Nobody updates them, so that nobody needs a float32 copy or states of them. A
release that takes every parameter of a group for a trained one has 4 bytes more for the copy. Source:
deepspeed/runtime/fp16/unfused_optimizer.py, bf16_optimizer.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {"optimizer_over": "all", "layers": 6, "hidden_size": 256}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"layers": 4, "hidden_size": 512})
CHOICES: Mapping[str, tuple[Any, ...]] = {"optimizer_over": ("all", "trainable")}
METRIC = "frozen_bytes"


def _elements(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of the frozen weights of the deeper half."""
    return {"frozen_bytes": 2 * _elements(parameters)}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: constants cancel."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names; the trained matrix is not counted."""
    return {
        "model.parameters": _elements(parameters),
        "model.trainable_parameters": 0,
        "training.zero_stage": 0,
        "training.param_dtype": "bfloat16",
        "training.mixed_precision": "bf16",
        "training.pipeline_parallel": 1,
        "training.peft": "lora",
        "program.optimizes_frozen": parameters["optimizer_over"] == "all",
        "hardware.world_size": 1,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Build two engines, train each for two steps, and take the difference of what they keep."""
    import torch
    from torch import nn

    deepspeed = recorder.deepspeed()
    hidden = parameters["hidden_size"]
    # The first product of a shape makes oneDNN keep scratch memory for good.
    warm = nn.Linear(hidden, hidden, bias=False).bfloat16()
    warm(torch.randn(2, hidden, dtype=torch.bfloat16, requires_grad=True)).float().sum().backward()
    del warm
    kept = []
    grown = []
    for depth in (parameters["layers"], 2 * parameters["layers"]):
        before = recorder.live_bytes()
        model = nn.Sequential(*(nn.Linear(hidden, hidden, bias=False) for _ in range(depth + 1))).bfloat16()
        model[:depth].requires_grad_(False)
        over = [one for one in model.parameters() if one.requires_grad or parameters["optimizer_over"] == "all"]
        configuration = {
            "train_micro_batch_size_per_gpu": 2,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 0},
        }
        optimizer = torch.optim.AdamW(over, lr=1e-4, foreach=False)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
        with recorder.phase(f"train-{depth}"):
            for _ in range(2):
                loss = engine(torch.randn(2, hidden, dtype=torch.bfloat16)).float().sum()
                engine.backward(loss)
                engine.step()
                del loss
        grown.append(recorder.live_bytes() - before)
        kept.append(engine)
    recorder.result("frozen_bytes", grown[1] - grown[0])
    recorder.result("bytes_per_frozen_parameter", (grown[1] - grown[0]) / _elements(parameters))
