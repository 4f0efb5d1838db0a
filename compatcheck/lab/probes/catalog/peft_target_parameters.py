"""Bytes per expert parameter that LoRA on a fused expert parameter keeps for backward and takes at the peak of forward.

A module with one parameter of ``experts`` matrices, in bfloat16, reads them one at a time, ``weight[0]``, ``weight[1]``, ...,
as the plain loop over experts does; peft adapts the parameter (``target_parameters``). ``access`` ``once`` reads the whole
parameter a single time, as fused kernels do. Measured at two widths in and two out; the mixed difference has only what grows
with the parameter, experts x in x out, and is divided by it.

Prediction. Base plus update is computed once per forward, in the dtype of the base, and kept for the gradients of the inputs:
``kept_bytes_per_parameter`` is 2.

peft 0.17 and 0.18 compute the sum anew at each access: 2 x ``experts`` bytes per expert parameter, (experts - 1) too many. So a
layer of E experts with P parameters in the adapted stack keeps itemsize x P x (E - 1) bytes more, where each expert is read
once (in a real model: where each has a token). Source: peft 0.18.1 and 0.21.2 tuners/lora/layer.py ParamWrapper,
_LoraParameterProxy. CUDA: the same operators, never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("peft", "transformers")
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "access": "each",
    "experts": 4,
    "tokens": 8,
    "inputs": 32,
    "outputs": 48,
    "rank": 2,
}
SIZES = ({"access": "once"}, {"access": "once", "experts": 8, "inputs": 48})
CHOICES: Mapping[str, tuple[Any, ...]] = {"access": ("each", "once")}
VARIED: Mapping[str, tuple[Any, ...]] = {"tokens": (1,), "access": ("each", "once")}
METRIC = "kept_bytes_per_parameter"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of one sum."""
    return {"kept_bytes_per_parameter": 2}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the mixed difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller widths in the vocabulary's names."""
    weights = parameters["experts"] * parameters["inputs"] * parameters["outputs"]
    return {
        "model.parameters": weights,
        "model.parameters_in_blocks": weights,
        "model.expert_parameters": weights,
        "model.expert_parameters_per_layer": weights,
        "model.num_experts": parameters["experts"],
        "model.num_hidden_layers": 1,
        "model.load_dtype": "bfloat16",
        "model.quantization": None,
        "model.experts_implementation": "loop" if parameters["access"] == "each" else "batched_mm",
        "training.framework": "custom",
        "training.peft": "lora",
        "training.lora_rank": parameters["rank"],
        "training.lora_target_parameters": ["experts.weight"],
        "training.gradient_checkpointing": False,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward at two input and two output widths."""
    import inspect
    from functools import partial

    import torch
    from peft import LoraConfig, get_peft_model
    from torch import nn

    if "target_parameters" not in inspect.signature(LoraConfig.__init__).parameters:
        recorder.unsupported("needs peft >= 0.17, which adapts parameters")
    experts, once = parameters["experts"], parameters["access"] == "once"

    class Experts(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(experts, inputs, outputs))

        def forward(self, x: Any) -> Any:
            if once:
                return torch.bmm(x.expand(experts, -1, -1), self.weight).sum(0)
            return sum(x @ self.weight[index] for index in range(experts))

    class Model(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.experts = Experts(inputs, outputs)

        def forward(self, x: Any) -> Any:
            return self.experts(x)

    configuration = LoraConfig(r=parameters["rank"], target_modules=[], target_parameters=["experts.weight"])
    kept, peaks = [], []
    for inputs in (parameters["inputs"], 2 * parameters["inputs"]):
        for outputs in (parameters["outputs"], 2 * parameters["outputs"]):
            model = get_peft_model(Model(inputs, outputs).to(recorder.device, torch.bfloat16), configuration).train()
            x = torch.randn(
                parameters["tokens"], inputs, device=recorder.device, dtype=torch.bfloat16, requires_grad=True
            )
            with recorder.phase("forward"):
                result, peak, left = recorder.measure(partial(model, x))
            kept.append(left)
            peaks.append(peak)
            del result, x, model
    weights = experts * parameters["inputs"] * parameters["outputs"]
    for name, values in (("kept", kept), ("peak", peaks)):
        difference = values[3] - values[2] - values[1] + values[0]
        recorder.result(f"{name}_bytes", difference)
        recorder.result(f"{name}_bytes_per_parameter", difference / weights)
