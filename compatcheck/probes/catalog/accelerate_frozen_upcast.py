"""Bytes per parameter after accelerate prepared a half-precision model for FSDP2 with mixed precision, frozen or trainable.

``layers`` linear layers in bfloat16, of which every second one is trainable, go through accelerate's own
``fsdp2_prepare_model`` on ``world_size`` ranks. Its shard of each parameter is weighed on rank 0; ``of`` says which kind is
judged.

Prediction. Sizes divide by the ranks, so a rank holds 1 / ``world_size`` of each parameter. Trainable ones become float32
master weights, the optimizer's: 4 bytes per parameter, intended (accelerate pull request 3394). Frozen ones are only computed
with and stay as they were loaded: 2. ``excess_bytes_per_parameter`` is how much more than that a rank holds, times the ranks:
0. A release that casts the whole model has 2 more on frozen parameters; one that does not cast at all has -2 on trainable ones,
which is less memory and a wrong result (the optimizer updates bfloat16): ``trainable_bytes_per_parameter`` tells it, the
verdict does not. ``live_bytes``, what the allocator gave beyond the time before preparing, is reported as a witness.

accelerate only chooses FSDP on accelerators; on a CPU the probe calls the function with a stand-in for the Accelerator that has
what it reads: the plugin, the mixed precision, the device. FSDP1's cast sits in ``Accelerator.prepare_model`` behind that
choice and is not measured. CUDA: never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.probes.worker.recorder import Recorder

PACKAGES = ("accelerate",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "of": "frozen",
    "mixed_precision": "bf16",
    "layers": 4,
    "hidden": 128,
}
SIZES = (
    {},
    {"layers": 6, "hidden": 64},
    {"of": "trainable"},
    {"world_size": 1},
    {"mixed_precision": "no", "of": "trainable"},
)
METRIC = "excess_bytes_per_parameter"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per parameter of both kinds, and no excess."""
    return {
        "frozen_bytes_per_parameter": 2,
        "trainable_bytes_per_parameter": 2 if parameters["mixed_precision"] == "no" else 4,
        "excess_bytes_per_parameter": 0,
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: sizes divide by the ranks."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    each = parameters["hidden"] ** 2
    return {
        "model.parameters": each * parameters["layers"],
        "model.parameters_in_blocks": each * parameters["layers"],
        "model.trainable_parameters": each * (parameters["layers"] // 2),
        "model.load_dtype": "bfloat16",
        "model.quantization": None,
        "training.framework": "accelerate",
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.fsdp_offload_params": False,
        "training.mixed_precision": parameters["mixed_precision"],
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Prepare, and weigh what a rank holds."""
    import inspect
    import os
    from types import SimpleNamespace

    import torch
    import torch.distributed as dist
    from accelerate import PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch import nn

    if "fsdp_version" not in inspect.signature(FullyShardedDataParallelPlugin.__init__).parameters:
        recorder.unsupported("needs accelerate >= 1.6, which has FSDP2")
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    class Model(nn.Sequential):
        # Release 1.6 asks for it, as models of transformers have it.
        dtype = property(lambda self: next(self.parameters()).dtype)

    # One rank is not launched with addresses to meet at; a store of its own will do.
    store = None if "RANK" in os.environ else dist.HashStore()
    dist.init_process_group("gloo", rank=recorder.rank, world_size=recorder.world_size, store=store)
    try:
        PartialState(cpu=True)  # accelerate's logger asks for it
        hidden = parameters["hidden"]
        model = Model(*(nn.Linear(hidden, hidden, bias=False) for _ in range(parameters["layers"])))
        model = model.to(torch.bfloat16)
        for index, layer in enumerate(model):
            layer.requires_grad_(index % 2 == 1)
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
        if parameters["mixed_precision"] != "no":
            plugin.set_mixed_precision(parameters["mixed_precision"])
        accelerator = SimpleNamespace(
            state=SimpleNamespace(fsdp_plugin=plugin),
            mixed_precision=parameters["mixed_precision"],
            device=torch.device(recorder.device),
            is_main_process=recorder.rank == 0,
            parallelism_config=None,
        )
        with recorder.phase("prepare"):
            model = fsdp2_prepare_model(accelerator, model)
        held, numbers = {True: 0, False: 0}, {True: 0, False: 0}
        for weight in model.parameters():
            local = weight.to_local()
            held[weight.requires_grad] += local.untyped_storage().nbytes()
            numbers[weight.requires_grad] += weight.numel()
        recorder.result("live_bytes", recorder.live_bytes())
    finally:
        dist.destroy_process_group()
    ranks = parameters["world_size"]
    intended = predict(parameters)
    for trainable, name in ((False, "frozen"), (True, "trainable")):
        each = held[trainable] * ranks / numbers[trainable]
        recorder.result(f"{name}_bytes", held[trainable])
        recorder.result(f"{name}_bytes_per_parameter", each)
        if name == parameters["of"]:
            recorder.result("excess_bytes_per_parameter", each - intended[f"{name}_bytes_per_parameter"])
