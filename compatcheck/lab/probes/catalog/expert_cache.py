"""What bitsandbytes keeps of dequantised parameters under checkpointing.

``layers`` modules hold ``experts`` square matrices in one parameter, in 4 bit by ``replace_parameter_4bit``, and are a
checkpointed region each, which ends with them. One step is run, forward and backward.

Prediction. A dequantised parameter is cached while its module runs and no longer: `kept_bytes`, what is live after backward
beyond what was live before the step, is 0. A release whose cache stays open where recomputation stops early keeps all of them in
bfloat16: 2 x layers x experts x hidden x hidden. ``reentrant`` checkpointing does not stop early.

Source: bitsandbytes/nn/parametrize.py _register_parametrization_hooks().
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("bitsandbytes",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"reentrant": False, "layers": 3, "experts": 4, "hidden": 128, "rows": 8}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"layers": 2, "experts": 8}, {"reentrant": True})
METRIC = "kept_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing."""
    return {"kept_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.expert_parameters": parameters["layers"] * parameters["experts"] * parameters["hidden"] ** 2,
        "model.quantization": "nf4",
        "training.gradient_checkpointing": True,
        "training.use_reentrant": parameters["reentrant"],
        "training.quantize_moe_experts": True,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run one step."""
    import torch
    from torch.utils.checkpoint import checkpoint

    try:
        from bitsandbytes.nn.parametrize import replace_parameter_4bit
    except ImportError:
        recorder.unsupported("this release of bitsandbytes quantises no parameters of other modules")
    hidden = parameters["hidden"]

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.randn(parameters["experts"], hidden, hidden, dtype=torch.bfloat16, device=recorder.device)
            self.weight = torch.nn.Parameter(weight, requires_grad=False)

        def forward(self, states: Any) -> Any:
            for index in range(parameters["experts"]):
                states = states @ self.weight[index]
            return states

    layers = [Experts() for _ in range(parameters["layers"])]
    for layer in layers:
        replace_parameter_4bit(layer, "weight", quant_type="nf4")
    states = torch.randn(parameters["rows"], hidden, dtype=torch.bfloat16, device=recorder.device, requires_grad=True)
    states.grad = torch.zeros_like(states)
    before = recorder.live_bytes()
    with recorder.phase("forward"):
        value = states
        for layer in layers:
            value = checkpoint(layer, value, use_reentrant=parameters["reentrant"])
    with recorder.phase("backward"):
        value.sum().backward()
    del value
    recorder.result("kept_bytes", recorder.live_bytes() - before)
