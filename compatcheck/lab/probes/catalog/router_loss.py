"""Bytes of one-hot choices at the peak of the load-balancing loss of a mixture of experts.

``load_balancing_loss_func`` of ``model_type`` gets router logits in bfloat16 of ``layers`` layers, with or without a mask, at two
lengths and two numbers of experts per token. The mixed difference of four peaks holds what grows with both; it is divided by
layers x tokens x experts per token x experts.

Prediction. The loss wants how often each expert was chosen. Counted layer by layer (transformers from 5.16) nothing of that size
is there but the chosen indices, 8 bytes each and no more for more experts: 0 beside it. Before, the choices of all layers are one
tensor of one-hot rows, 8 bytes, and their float32 copy, 4: 12. With a mask that is expanded to the same shape, 8, and the masked
product, 4: 24. CUDA: the same operators, never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "model_type": "mixtral",
    "mask": "ones",
    "layers": 4,
    "batch": 2,
    "length": 64,
    "experts": 64,
    "experts_per_token": 2,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"mask": "none", "layers": 8, "experts": 96})
CHOICES: Mapping[str, tuple[Any, ...]] = {"mask": ("none", "ones")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "experts_per_token": (4,)}
METRIC = "one_hot_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing."""
    return {"one_hot_bytes": 0, "one_hot_bytes_per_choice": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the indices of one layer, what repeats a mask for them, and the copies that counting makes."""
    return 32 * parameters["batch"] * parameters["length"] * parameters["experts_per_token"]


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.num_hidden_layers": parameters["layers"],
        "model.num_experts": parameters["experts"],
        "model.num_experts_per_token": parameters["experts_per_token"],
        "model.output_router_logits": True,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "run.attention_mask": parameters["mask"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss at two lengths and two numbers of experts per token."""
    import importlib
    from functools import partial

    import torch

    name = parameters["model_type"]
    try:
        module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        loss = module.load_balancing_loss_func
    except (ImportError, AttributeError):
        recorder.unsupported(f"this release of transformers has no load-balancing loss for {name}")
    batch, experts = parameters["batch"], parameters["experts"]
    peaks = []
    for length in (parameters["length"], 2 * parameters["length"]):
        logits = tuple(
            torch.randn(batch * length, experts, device=recorder.device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(parameters["layers"])
        )
        mask = torch.ones(batch, length, device=recorder.device, dtype=torch.long)
        for chosen in (parameters["experts_per_token"], 2 * parameters["experts_per_token"]):
            call = partial(loss, logits, experts, chosen, *(() if parameters["mask"] == "none" else (mask,)))
            with recorder.phase("loss"):
                peaks.append(recorder.measure(call)[1])
    difference = peaks[3] - peaks[2] - peaks[1] + peaks[0]
    choices = parameters["layers"] * batch * parameters["length"] * parameters["experts_per_token"] * experts
    recorder.result("one_hot_bytes", difference)
    recorder.result("one_hot_bytes_per_choice", difference / choices)
