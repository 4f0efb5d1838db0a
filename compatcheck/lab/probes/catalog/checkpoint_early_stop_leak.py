"""Outputs saved by a custom autograd.Function at the end of a checkpointed region: are they freed as each step ends?

Non-reentrant ``torch.utils.checkpoint`` stops the recomputation in backward by an exception as soon as the last
needed tensor is there (torch >= 2.1). Where the region ends in a Function that saves one of its outputs, the
exception leaves from inside its ``apply``, before the context is released; in some releases context and output then
hold each other until Python collects garbage (pytorch#161186), which it begins by the count of objects, not by their bytes.

``layers`` regions are trained for ``steps`` steps; ``early_stop`` off runs the recomputation to its end; ``saves``
``input`` instead of ``output`` is the harmless kind of Function.

Prediction: `leaked_bytes_per_step`, the peak of ``steps`` steps above that of one, without a garbage collection in between and
divided by the further steps, is 0. A release that leaks keeps the saved output of each region, 4 x batch x width x layers a step,
and what the context refers to besides. `left_bytes_per_step`, what is live after a garbage collection, is 0 in all of them.

Source: pytorch#161186, pytorch#160781.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "early_stop": True,
    "saves": "output",
    "layers": 3,
    "batch": 8,
    "width": 64,
    "steps": 6,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"layers": 5, "width": 128}, {"saves": "input"}, {"early_stop": False})
CHOICES: Mapping[str, tuple[Any, ...]] = {"saves": ("output", "input")}
METRIC = "leaked_bytes_per_step"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return no growth."""
    return {"leaked_bytes_per_step": 0, "left_bytes_per_step": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: what a step holds besides is the same in each."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.num_hidden_layers": parameters["layers"],
        "model.hidden_size": parameters["width"],
        "training.gradient_checkpointing": True,
        "training.use_reentrant": False,
        "run.custom_autograd_function": parameters["saves"] == "output",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train and watch what stays."""
    import contextlib
    import gc

    import torch
    import torch.utils.checkpoint

    saves_output = parameters["saves"] == "output"

    class Saving(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            result = value.exp()
            ctx.save_for_backward(result if saves_output else value)
            return result

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (saved,) = ctx.saved_tensors
            return gradient * (saved if saves_output else saved.exp())

    def stopping() -> Any:
        if parameters["early_stop"]:
            return contextlib.nullcontext()
        if not hasattr(torch.utils.checkpoint, "set_checkpoint_early_stop"):
            recorder.unsupported("needs torch.utils.checkpoint.set_checkpoint_early_stop, torch >= 2.1")
        return torch.utils.checkpoint.set_checkpoint_early_stop(False)

    width = parameters["width"]
    with recorder.phase("load"):
        layers = [torch.nn.Linear(width, width, device=recorder.device) for _ in range(parameters["layers"])]
        weights = [weight for layer in layers for weight in layer.parameters()]

    def train(steps: int) -> None:
        for _ in range(steps):
            value = torch.randn(parameters["batch"], width, device=recorder.device, requires_grad=True)
            with stopping():
                for layer in layers:
                    value = torch.utils.checkpoint.checkpoint(
                        lambda value, layer=layer: Saving.apply(layer(value) * 0.01), value, use_reentrant=False
                    )
            value.sum().backward()
            for weight in weights:
                weight.grad = None

    train(1)
    gc.disable()
    with recorder.phase("one"):
        _, one, _ = recorder.measure(lambda: train(1))
    with recorder.phase("several"):
        _, several, left = recorder.measure(lambda: train(parameters["steps"]))
    gc.enable()
    recorder.result("leaked_bytes_per_step", (several - one) / (parameters["steps"] - 1))
    recorder.result("left_bytes_per_step", left / parameters["steps"])
