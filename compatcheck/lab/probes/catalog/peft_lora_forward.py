"""Bytes per token that a block of adapted linear layers keeps for backward, inputs cast to the adapters' dtype included.

A block has the seven linear layers of a llama block and nothing else that saves anything: ``q``, ``k`` and ``v`` share an
input, ``o`` has its own, ``gate`` and ``up`` share one, ``down`` has its own of width ``intermediate``; sums take the place of
attention and gating. The base is frozen, in ``dtype``; all seven have LoRA adapters of rank ``rank``. What forward leaves alive
is measured at two numbers of blocks and two of tokens; the mixed difference is what a token costs in a block, free of weights,
of the batch itself and of the last output.

Prediction, with s bytes per element of ``dtype``, no cast: ``lora_A`` keeps its input for the gradient of its weight, the four
distinct inputs of a block, s x (3 hidden + intermediate); ``lora_B`` keeps its input, 7 s x rank. With ``dropout`` in front of
``lora_A`` each of the seven keeps its own dropped input and a mask of the input's dtype besides (a CPU's dropout; CUDA's mask
has 1 byte): 2 s x (6 hidden + intermediate) + 7 s x rank, and the inputs are not kept for themselves.

peft's float32 adapters (``autocast_adapter_dtype`` ``unset``, from the release that has it) cast each of the seven inputs for
itself, shared or not, and keep the copy: 4 x (6 hidden + intermediate) + 28 rank. Under ``mixed_precision`` bf16 autocast casts
the copy back, one more copy for each: 2 x (6 hidden + intermediate) + 14 rank. CUDA: the same operators but for dropout, never
run.
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
    "dtype": "bfloat16",
    "dropout": 0.0,
    "layers": 1,
    "batch": 2,
    "length": 64,
    "hidden": 64,
    "intermediate": 96,
    "rank": 8,
}
SIZES = (
    {"autocast_adapter_dtype": "off"},
    {"autocast_adapter_dtype": "off", "hidden": 32, "rank": 4, "layers": 2},
    {"autocast_adapter_dtype": "off", "dropout": 0.1},
    {"autocast_adapter_dtype": "off", "mixed_precision": "bf16", "batch": 3},
    {"dtype": "float32", "intermediate": 128},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "autocast_adapter_dtype": ("unset", "off"),
    "mixed_precision": ("no", "bf16"),
    "dtype": ("bfloat16", "float32"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {
    "batch": (1,),
    "dropout": (0.0, 0.1),
    "dtype": ("bfloat16", "float32"),
    "mixed_precision": ("no", "bf16"),
}
METRIC = "kept_bytes_per_token"
_NAMES = ("q", "k", "v", "o", "gate", "up", "down")


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per token and block."""
    item = 2 if parameters["dtype"] == "bfloat16" else 4
    hidden, intermediate = parameters["hidden"], parameters["intermediate"]
    inputs = 2 * (6 * hidden + intermediate) if parameters["dropout"] else 3 * hidden + intermediate
    return {"kept_bytes_per_token": item * (inputs + len(_NAMES) * parameters["rank"])}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the slope is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    return {
        "model.load_dtype": parameters["dtype"],
        "model.quantization": None,
        "model.num_hidden_layers": parameters["layers"],
        "model.hidden_size": parameters["hidden"],
        "model.intermediate_size": parameters["intermediate"],
        "training.framework": "custom",
        "training.peft": "lora",
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
    """Run forward at two depths and two lengths."""
    import inspect
    from functools import partial

    import torch
    from peft import LoraConfig, get_peft_model
    from torch import nn

    hidden, intermediate = parameters["hidden"], parameters["intermediate"]
    dtype = getattr(torch, parameters["dtype"])

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
            self.down = nn.Linear(intermediate, hidden, bias=False)

        def forward(self, x: Any) -> Any:
            x = self.o(self.q(x) + self.k(x) + self.v(x))
            return self.down(self.gate(x) + self.up(x))

    options = {}
    if (
        parameters["autocast_adapter_dtype"] == "off"
        and "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters
    ):
        options["autocast_adapter_dtype"] = False
    configuration = LoraConfig(r=parameters["rank"], target_modules=list(_NAMES), lora_dropout=parameters["dropout"])
    autocast = torch.autocast(recorder.device, torch.bfloat16, enabled=parameters["mixed_precision"] == "bf16")
    left: list[int] = []
    for layers in (parameters["layers"], 2 * parameters["layers"]):
        model = nn.Sequential(*(Block() for _ in range(layers))).to(recorder.device, dtype)
        model = get_peft_model(model, configuration, **options).train()
        for length in (parameters["length"], 2 * parameters["length"]):
            x = torch.randn(
                parameters["batch"], length, hidden, device=recorder.device, dtype=dtype, requires_grad=True
            )
            with recorder.phase("forward"), autocast:
                output, _, kept = recorder.measure(partial(model, x))
            left.append(kept)
            del output, x
    tokens = parameters["batch"] * parameters["length"]
    slope = left[3] - left[2] - left[1] + left[0]
    recorder.result("kept_bytes_per_token", slope / (tokens * parameters["layers"]))
    recorder.result("kept_bytes", slope)
