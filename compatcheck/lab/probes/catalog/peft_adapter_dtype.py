"""Bytes per adapter parameter that peft adds to a half-precision model.

``layers`` linear layers in ``dtype`` get LoRA adapters of rank ``rank``; ``autocast_adapter_dtype`` is left ``unset``, or
turned ``off``. What ``get_peft_model`` leaves alive beyond the model, divided by the adapters' parameters, layers x rank x 2 x
hidden, is bytes per adapter parameter.

Prediction. Adapters in the dtype of the model: 2 bytes for bfloat16, 4 for float32. peft casts them to float32 unless told not
to, from the release that has the option on: 4. The adapters themselves are small; what their dtype does to the activations is
measured by ``peft_lora_forward``. ``off`` in a release that lacks the option is what that release does anyway. CUDA: the same
operators, never run.
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
    "autocast_adapter_dtype": "unset",
    "dtype": "bfloat16",
    "layers": 3,
    "hidden": 64,
    "rank": 8,
}
SIZES = (
    {"autocast_adapter_dtype": "off"},
    {"autocast_adapter_dtype": "off", "hidden": 96, "rank": 4},
    {"dtype": "float32", "layers": 2},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"autocast_adapter_dtype": ("unset", "off"), "dtype": ("bfloat16", "float32")}
METRIC = "bytes_per_adapter_parameter"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of the model's dtype."""
    return {"bytes_per_adapter_parameter": 2 if parameters["dtype"] == "bfloat16" else 4}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: nothing else is kept."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.load_dtype": parameters["dtype"],
        "model.quantization": None,
        "model.num_hidden_layers": parameters["layers"],
        "model.hidden_size": parameters["hidden"],
        "training.framework": "custom",
        "training.peft": "lora",
        "training.lora_rank": parameters["rank"],
        **({"training.autocast_adapter_dtype": False} if parameters["autocast_adapter_dtype"] == "off" else {}),
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Add adapters and weigh them."""
    import inspect

    import torch
    from peft import LoraConfig, get_peft_model
    from torch import nn

    hidden, rank, layers = parameters["hidden"], parameters["rank"], parameters["layers"]
    model = nn.Sequential(*(nn.Linear(hidden, hidden, bias=False) for _ in range(layers)))
    model = model.to(recorder.device, getattr(torch, parameters["dtype"]))
    options = {}
    if (
        parameters["autocast_adapter_dtype"] == "off"
        and "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters
    ):
        options["autocast_adapter_dtype"] = False
    configuration = LoraConfig(r=rank, target_modules=[str(index) for index in range(layers)])
    with recorder.phase("adapters"):
        _adapted, _, left = recorder.measure(lambda: get_peft_model(model, configuration, **options))
    recorder.result("bytes_per_adapter_parameter", left / (layers * rank * 2 * hidden))
