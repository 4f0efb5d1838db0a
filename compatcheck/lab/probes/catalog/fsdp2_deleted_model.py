"""What a deleted model leaves behind that FSDP2 was applied to, in the same process.

``layers`` square matrices of ``side`` are each sharded by ``fully_shard`` over a mesh of one rank, and so is the module around
them; the model is deleted, ``models`` times over. Nothing runs forward: what the process keeps of modules is kept from the
wrapping on.

Prediction: `left_bytes`, what is live after a garbage collection above what was live before the first model, for each model: 0.
A release that maps modules to their state for ever keeps the shards, 4 x layers x side² of float32.

Source: torch/distributed/_composable_state.py; pytorch#139650.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
ALONE = True
DEFAULTS: Mapping[str, Any] = {"layers": 3, "side": 64, "models": 3}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"layers": 2, "side": 96, "models": 5})
METRIC = "left_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return what a deleted model leaves: nothing."""
    return {"left_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return a hundredth of a model: tables of modules and parameters hold small tensors at most."""
    return parameters["layers"] * parameters["side"] ** 2 / 25


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    elements = parameters["layers"] * parameters["side"] ** 2
    return {
        "model.parameters": elements,
        "model.trainable_parameters": elements,
        "model.load_dtype": "float32",
        "training.peft": None,
        "training.param_dtype": "float32",
        "training.master_dtype": None,
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.fsdp_offload_params": False,
        "hardware.world_size": 1,
        "run.repeated_initialize": True,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Shard and delete, again and again."""
    import torch
    import torch.distributed as dist

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        try:
            from torch.distributed._composable.fsdp import fully_shard
        except ImportError:
            recorder.unsupported("needs FSDP2 (fully_shard), torch >= 2.3")
    from torch.distributed.device_mesh import init_device_mesh

    backend = "nccl" if recorder.device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh(recorder.device, (1,))
    side = parameters["side"]

    def shard() -> None:
        layers = (torch.nn.Linear(side, side, bias=False, device=recorder.device) for _ in range(parameters["layers"]))
        model = torch.nn.Sequential(*layers)
        for module in (*model, model):
            fully_shard(module, mesh=mesh)

    before = recorder.live_bytes()
    with recorder.phase("models"):
        for _ in range(parameters["models"]):
            shard()
    recorder.result("left_bytes", (recorder.live_bytes() - before) / parameters["models"])
    dist.destroy_process_group()
