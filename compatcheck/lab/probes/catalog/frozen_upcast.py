"""Bytes per parameter of frozen and trainable weights after accelerate has prepared a model for FSDP2.

A model of ``layers`` frozen bfloat16 matrices with a trainable adapter beside each goes through
``accelerate.utils.fsdp2_prepare_model`` with mixed precision bf16 on ``world_size`` ranks, as ``Accelerator.prepare``
does it. What is asked for is float32 master weights of what is trained. Counted are the bytes of the local shards.

Prediction, F frozen and T trainable parameters, w ranks: `frozen_bytes` is 2 F / w, since nobody updates them;
`trainable_bytes` is 4 T / w. A release that casts the whole model has 4 F / w; one that casts nothing has 2 T / w,
and trains in bfloat16.

Source: accelerate/utils/fsdp_utils.py, fsdp2_prepare_model. The Accelerator is stood in for by an object with the
attributes the function reads, because it offers FSDP on accelerators only; the plugin is accelerate's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("accelerate",)
BACKENDS = ("cpu",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "layers": 4,
    "hidden_size": 64,
    "rank_of_adapters": 4,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"layers": 3, "hidden_size": 96})
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "frozen_bytes"


def _counts(parameters: Mapping[str, Any]) -> tuple[int, int]:
    layers, width = parameters["layers"], parameters["hidden_size"]
    return layers * width * width, layers * 2 * width * parameters["rank_of_adapters"]


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes of the local shards."""
    frozen, trainable = _counts(parameters)
    ranks = parameters["world_size"]
    return {"frozen_bytes": 2 * frozen // ranks, "trainable_bytes": 4 * trainable // ranks}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: shards are even."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    frozen, trainable = _counts(parameters)
    return {
        "model.parameters": frozen + trainable,
        "model.trainable_parameters": trainable,
        "model.load_dtype": "bfloat16",
        "model.quantization": None,
        "training.framework": "accelerate",
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.fsdp_offload_params": False,
        "training.mixed_precision": "bf16",
        "training.peft": "lora",
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Prepare the model and weigh the shards."""
    import types

    import torch
    import torch.distributed as dist
    from accelerate import PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin

    try:
        from accelerate.utils.fsdp_utils import fsdp2_prepare_model
    except ImportError:
        recorder.unsupported("needs accelerate >= 1.6: there is no fsdp2_prepare_model")
    dist.init_process_group("gloo")
    PartialState(cpu=True)  # its logger asks for it
    width, rank = parameters["hidden_size"], parameters["rank_of_adapters"]

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Linear(width, width, bias=False).requires_grad_(False)
            self.down = torch.nn.Linear(width, rank, bias=False)
            self.up = torch.nn.Linear(rank, width, bias=False)

    class Model(torch.nn.Sequential):
        dtype = torch.bfloat16  # as models of transformers have it

    model = Model(*(Layer() for _ in range(parameters["layers"]))).bfloat16()
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
    plugin.set_mixed_precision("bf16")
    stand_in = types.SimpleNamespace(
        state=types.SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16",
        device=torch.device("cpu"),
        torch_device_mesh=None,
        parallelism_config=None,
        is_main_process=recorder.rank == 0,
        is_fsdp2=True,
    )
    with recorder.phase("load"):
        model = fsdp2_prepare_model(stand_in, model)
    sizes = {True: 0, False: 0}
    for weight in model.parameters():
        local = weight.to_local()
        sizes[weight.requires_grad] += local.numel() * local.element_size()
    recorder.result("frozen_bytes", sizes[False])
    recorder.result("trainable_bytes", sizes[True])
    dist.destroy_process_group()
