"""Bytes that a DeepSpeed engine leaves behind after `destroy()`, with its model dropped too or still alive.

An engine is built around a stack of linear layers, trained for a step and destroyed; every reference to it and to its
optimizer is dropped and garbage is collected. This is done twice, with a new model each time, and the second time counts:
what libraries keep for good was taken the first time.

Prediction. A model that outlives its engine holds its own weights, 2 bytes per parameter, which `destroy()` may have left
as views of the engine's flat buffer: nothing beyond them is left, and nothing at all when the model is dropped too.
``left_bytes`` = 0, with ``keep_model`` (its weights are not counted) and without. Before 0.14.5 each parameter of ZeRO-1/2
keeps a mapping to its float32 states
(https://github.com/deepspeedai/DeepSpeed/pull/5643): 12 bytes x parameters / world_size; a view of the parameter is in
it, so that both stay when the model is dropped, 14 bytes. Before 0.13.0 the gradient hooks
tie parameters and optimizer together where the garbage collector does not see it, and all of it stays even without the
model (https://github.com/deepspeedai/DeepSpeed/pull/4858). From 0.16.5 the engine puts hooks of its own on the model
(`_create_module_forward_pre_hook`), which `destroy()` leaves there: engine and optimizer states live as long as the model,
12 bytes x parameters / world_size once more. At stage 3 the model itself is put on a list of the module parameter_offload,
`FWD_MODULE_STACK`, and never taken off: 16 bytes x parameters / world_size stay whatever is dropped, in every release
measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {"world_size": 1, "zero_stage": 2, "layers": 4, "hidden_size": 256, "keep_model": False}
SIZES = ({"zero_stage": 2}, {"zero_stage": 1, "layers": 6, "hidden_size": 128})
CHOICES: Mapping[str, tuple[Any, ...]] = {"zero_stage": (0, 1, 2, 3)}
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "left_bytes"


def _elements(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing."""
    return {"left_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return a few scalars: counters and the last norm."""
    return 256


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.parameters": _elements(parameters),
        "model.trainable_parameters": _elements(parameters),
        "training.zero_stage": parameters["zero_stage"],
        "training.param_dtype": "bfloat16",
        "hardware.world_size": parameters["world_size"],
        "run.repeated_initialize": True,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Build, train and destroy two engines, one after the other."""
    import gc

    import torch
    from torch import nn

    deepspeed = recorder.deepspeed()
    hidden, layers = parameters["hidden_size"], parameters["layers"]
    configuration = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": parameters["zero_stage"],
            "stage3_param_persistence_threshold": 0,
            "reduce_bucket_size": _elements(parameters),
            "overlap_comm": False,
        },
    }

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
        inputs = torch.randn(2, hidden, dtype=torch.bfloat16, requires_grad=True)
        engine.backward(engine(inputs).float().sum())
        engine.step()
        model.zero_grad()
        engine.destroy()

    def settle() -> None:
        # A tensor that C++ holds too is brought back to life by the first collection and freed by a later one.
        while gc.collect():
            pass

    for name in ("first", "second"):
        before = recorder.live_bytes()
        model = nn.Sequential(*(nn.Linear(hidden, hidden, bias=False) for _ in range(layers))).bfloat16()
        weights = recorder.live_bytes() - before
        with recorder.phase(name):
            train(model)
        settle()
        left = recorder.live_bytes() - before - weights
        del model
        settle()
        if not parameters["keep_model"]:
            left = recorder.live_bytes() - before
    recorder.result("left_bytes", left)
    recorder.result("left_bytes_per_parameter", left / _elements(parameters))
