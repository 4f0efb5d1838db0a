"""Outputs saved by a custom autograd.Function at the end of a checkpointed region: are they freed after each step?

Non-reentrant ``torch.utils.checkpoint`` stops the recomputation in backward by an exception as soon as the last
needed tensor is there (torch >= 2.1). Where the region ends in a Function that saves one of its outputs, the
exception leaves from inside its ``apply``, before the context is released; in some releases context and output then
hold each other and stay for ever (pytorch#161186).

``layers`` regions are trained for ``steps`` steps; ``early_stop`` off runs the recomputation to its end; ``saves``
``input`` instead of ``output`` is the harmless kind of Function.

Prediction: `leaked_bytes_per_step`, the growth of what is live after a step and a garbage collection over all steps
but the first, divided by their number, is 0. A release that leaks keeps the saved output of each region: 4 x batch x
width x layers a step.

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
    return {"leaked_bytes_per_step": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: what a step leaves behind is counted after a garbage collection."""
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
    live = []
    for _ in range(parameters["steps"]):
        value = torch.randn(parameters["batch"], width, device=recorder.device, requires_grad=True)
        with recorder.phase("forward"), stopping():
            for layer in layers:
                value = torch.utils.checkpoint.checkpoint(
                    lambda value, layer=layer: Saving.apply(layer(value) * 0.01), value, use_reentrant=False
                )
        with recorder.phase("backward"):
            value.sum().backward()
        del value
        for weight in weights:
            weight.grad = None
        live.append(recorder.live_bytes())
    recorder.result("leaked_bytes_per_step", (live[-1] - live[0]) / (len(live) - 1))
