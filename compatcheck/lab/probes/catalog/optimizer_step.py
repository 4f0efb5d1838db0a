"""State and temporaries of an optimizer step, by optimizer and implementation.

``tensors`` square matrices with gradients are stepped twice; the second step counts, because the first makes the
state. N is the number of elements of all matrices, m of one, h of one side, b the bytes of an element.

Prediction of `state_bytes`, what the first step leaves: AdamW two moments of b x N and a float32 count of 4 bytes per
tensor; SGD with momentum b x N; Adafactor a row and a column, 2 x b x h, and a count of 4 bytes per tensor. On a GPU the
counts of ``foreach`` and ``for_loop`` stay on the host, and `state_bytes` is lower by them.

Prediction of `temporary_bytes`, the peak of the second step above what is live before it:
- ``foreach`` handles all tensors of a dtype and device at once, so each intermediate is b x N. AdamW needs one,
  ``_foreach_sqrt`` of the second moments (all later operations are in place; torch 2.0 made a second one). SGD needs
  one for weight decay, ``_foreach_add`` of gradients and parameters. Adafactor needs one, the product of rows and
  columns, and beside it one element per tensor, the mean of the rows.
- ``for_loop`` handles one tensor after the other, and the last result of one tensor lives in a local variable while
  the next is handled. AdamW: the old denominator, the square root and the new denominator, 3 x b x m. SGD: the
  gradient with weight decay, whose name is bound to the momentum afterwards, 1 x b x m. Adafactor: the
  old and the new update, 2 x b x m, with one row, one column and one element.
- ``fused`` needs none.

``counted`` by the ``allocator`` are releases before 2.2, in which a mode that counts storages keeps what ``_foreach_sqrt`` and
``_foreach_add`` return alive for ever.

Source: torch/optim/adam.py, sgd.py and _adafactor.py of 2.13.0; "~ sizeof(params) more peak memory" in the
documentation of ``foreach``. A tensor of several dtypes or devices forms groups of its own; the largest group counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "optimizer": "adamw",
    "implementation": "foreach",
    "dtype": "float32",
    "tensors": 8,
    "side": 64,
    "counted": "storages",
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"tensors": 5, "side": 96, "dtype": "bfloat16"},
    {"implementation": "for_loop"},
    {"implementation": "for_loop", "side": 48},
    {"implementation": "fused"},
    {"implementation": "fused", "side": 128},
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "implementation": "for_loop", "side": 96},
    {"optimizer": "sgd", "implementation": "fused"},
    {"optimizer": "adafactor"},
    {"optimizer": "adafactor", "implementation": "for_loop", "side": 96},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "optimizer": ("adamw", "sgd", "adafactor"),
    "implementation": ("foreach", "for_loop", "fused"),
    "dtype": ("bfloat16", "float16", "float32"),
    "counted": ("storages", "allocator"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {"dtype": ("float32", "bfloat16")}
METRIC = "temporary_bytes"


def counted(parameters: Mapping[str, Any]) -> str:
    """Count as told."""
    return str(parameters["counted"])


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes of state and of temporaries."""
    side, count = parameters["side"], parameters["tensors"]
    element = 4 if parameters["dtype"] == "float32" else 2
    matrix = element * side * side
    everything = count * matrix
    state = {
        "adamw": 2 * everything + 4 * count,
        "sgd": everything,
        "adafactor": count * (2 * element * side + 4),
    }
    temporary = {
        ("adamw", "foreach"): everything,
        ("adamw", "for_loop"): 3 * matrix,
        ("sgd", "foreach"): everything,
        ("sgd", "for_loop"): matrix,
        ("adafactor", "foreach"): everything + element * count,
        ("adafactor", "for_loop"): 2 * matrix + element * (2 * side + 1),
    }
    optimizer, implementation = parameters["optimizer"], parameters["implementation"]
    return {"temporary_bytes": temporary.get((optimizer, implementation), 0), "state_bytes": state[optimizer]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    elements = parameters["tensors"] * parameters["side"] ** 2
    return {
        "model.parameters": elements,
        "model.trainable_parameters": elements,
        "training.param_dtype": parameters["dtype"],
        "training.master_dtype": None,
        "training.optimizer": parameters["optimizer"],
        "training.optimizer_implementation": parameters["implementation"],
        "training.sharding": "none",
        "training.peft": None,
        "training.fsdp_offload_params": False,
        "training.framework": "custom",
        "hardware.world_size": 1,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Step twice."""
    import torch

    kinds = {"adamw": "AdamW", "sgd": "SGD", "adafactor": "Adafactor"}
    optimizer_class = getattr(torch.optim, kinds[parameters["optimizer"]], None)
    if optimizer_class is None:
        recorder.unsupported(f"needs torch.optim.{kinds[parameters['optimizer']]}, which torch has from 2.5")
    options: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.01}
    if parameters["optimizer"] == "sgd":
        options["momentum"] = 0.9
    if parameters["implementation"] == "fused":
        options["fused"] = True
    else:
        options["foreach"] = parameters["implementation"] == "foreach"
    dtype, side = getattr(torch, parameters["dtype"]), parameters["side"]
    with recorder.phase("load"):
        weights = [
            torch.nn.Parameter(torch.randn(side, side, dtype=dtype, device=recorder.device))
            for _ in range(parameters["tensors"])
        ]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
    try:
        optimizer = optimizer_class(weights, **options)
        with recorder.phase("first step"):
            _, _, state = recorder.measure(optimizer.step)
    except (RuntimeError, TypeError) as error:
        recorder.unsupported(
            f"this release has no {parameters['implementation']} {kinds[parameters['optimizer']]}: {error}"
        )
    with recorder.phase("step"):
        _, temporary, _ = recorder.measure(optimizer.step)
    recorder.result("state_bytes", state)
    recorder.result("temporary_bytes", temporary)
