"""Bytes per wrapped parameter that a DoRA layer keeps for backward, and the peak of its forward.

One linear layer in bfloat16 with a DoRA adapter runs forward on an input that requires a gradient. Measured at two input and
two output widths: the mixed difference has only what grows with the weight, in x out, and is divided by it. Activations, the
adapter, the identity matrix that peft feeds it and the magnitudes drop out.

Prediction. DoRA needs the norm of W + BA, a constant without a gradient, and the base result, which it can reuse. So nothing of
the weight's size is kept: 0. Its ``peak_bytes_per_parameter`` holds BA, scaled BA and their sum with W in the dtype of the
adapter, and W where it is converted: 4 x 4 = 16 with float32 adapters, 3 x 2 = 6 with ``autocast_adapter_dtype`` ``off``. Under
autocast BA comes in either dtype, by release; that peak is reported, not predicted.

A release that multiplies the input by a converted weight once more (peft 0.12 and 0.13 always, from 0.14 with ``dropout`` in
front of the adapter) keeps that copy for the gradient of the input: 4 bytes per parameter, or 2 under ``mixed_precision`` bf16,
where autocast's copy of the copy is kept. With adapters in the weight's own dtype the weight itself is kept: 0. Source: peft
0.13.2 and 0.21.2 tuners/lora/dora.py. CUDA: the same operators, never run.
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
    "mixed_precision": "no",
    "dropout": 0.0,
    "batch": 2,
    "length": 8,
    "inputs": 128,
    "outputs": 192,
    "rank": 4,
}
SIZES = (
    {"autocast_adapter_dtype": "off"},
    {"autocast_adapter_dtype": "off", "dropout": 0.1, "inputs": 96},
    {"autocast_adapter_dtype": "off", "mixed_precision": "bf16", "outputs": 256},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"autocast_adapter_dtype": ("unset", "off"), "mixed_precision": ("no", "bf16")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "dropout": (0.0, 0.1), "mixed_precision": ("no", "bf16")}
METRIC = "kept_bytes_per_parameter"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing kept, and the peak."""
    kept = {"kept_bytes_per_parameter": 0.0}
    if parameters["autocast_adapter_dtype"] == "off":
        return {**kept, "peak_bytes_per_parameter": 6}
    return kept if parameters["mixed_precision"] == "bf16" else {**kept, "peak_bytes_per_parameter": 16}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the mixed difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller widths in the vocabulary's names."""
    weights = parameters["inputs"] * parameters["outputs"]
    return {
        "model.parameters": weights,
        "model.parameters_in_blocks": weights,
        "model.num_hidden_layers": 1,
        "model.load_dtype": "bfloat16",
        "model.quantization": None,
        "training.framework": "custom",
        "training.peft": "dora",
        "training.lora_rank": parameters["rank"],
        "training.lora_dropout": parameters["dropout"],
        "training.mixed_precision": parameters["mixed_precision"],
        "training.gradient_checkpointing": False,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        **({"training.autocast_adapter_dtype": False} if parameters["autocast_adapter_dtype"] == "off" else {}),
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default of peft, and what a bare loop does."""
    return {
        "training.autocast_adapter_dtype": parameters["autocast_adapter_dtype"] == "unset",
        "training.sharding": "none",
        "training.torch_autocast": False,
        "program.wraps_adapters_apart": False,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward at two input and two output widths."""
    import inspect
    from functools import partial

    import torch
    from peft import LoraConfig, get_peft_model
    from torch import nn

    options = {}
    if (
        parameters["autocast_adapter_dtype"] == "off"
        and "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters
    ):
        options["autocast_adapter_dtype"] = False
    if "use_dora" not in inspect.signature(LoraConfig.__init__).parameters:
        recorder.unsupported("needs peft >= 0.9, which has DoRA")
    configuration = LoraConfig(
        r=parameters["rank"], target_modules=["0"], lora_dropout=parameters["dropout"], use_dora=True
    )
    autocast = torch.autocast(recorder.device, torch.bfloat16, enabled=parameters["mixed_precision"] == "bf16")
    kept, peaks = [], []
    for inputs in (parameters["inputs"], 2 * parameters["inputs"]):
        for outputs in (parameters["outputs"], 2 * parameters["outputs"]):
            model = nn.Sequential(nn.Linear(inputs, outputs, bias=False)).to(recorder.device, torch.bfloat16)
            model = get_peft_model(model, configuration, **options).train()
            shape = (parameters["batch"], parameters["length"], inputs)
            x = torch.randn(shape, device=recorder.device, dtype=torch.bfloat16, requires_grad=True)
            with recorder.phase("forward"), autocast:
                result, peak, left = recorder.measure(partial(model, x))
            kept.append(left)
            peaks.append(peak)
            del result, x, model
    weights = parameters["inputs"] * parameters["outputs"]
    for name, values in (("kept", kept), ("peak", peaks)):
        difference = values[3] - values[2] - values[1] + values[0]
        recorder.result(f"{name}_bytes", difference)
        recorder.result(f"{name}_bytes_per_parameter", difference / weights)
