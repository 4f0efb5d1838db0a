"""A process group, and a model that is sharded over it by FSDP, of either kind.

A model is loaded inside the group, as under ``torchrun``, and made and saved before there is one: from transformers 5.15 on, only
the first rank of a group writes what it saves (``should_save_on_this_rank`` of transformers' distributed/mixin.py, whether the
model is sharded or not), and here each rank has a folder of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compatcheck.lab.probes.worker.recorder import Recorder


def choose_device(recorder: Recorder) -> None:
    """Give each rank a GPU of its own, where there are any."""
    import torch

    if recorder.device == "cuda":
        torch.cuda.set_device(recorder.rank % torch.cuda.device_count())


def join(recorder: Recorder) -> None:
    """Join the process group."""
    import torch.distributed as dist

    dist.init_process_group("nccl" if recorder.device == "cuda" else "gloo")


def shard(model: Any, kind: str, recorder: Recorder) -> Any:
    """Return a model of transformers sharded over all ranks, a unit a decoder layer.

    Args:
        model: whole, on the recorder's device.
        kind: ``fsdp1`` wraps it, ``fsdp2`` shards it in place.
        recorder: the probe's.
    """
    import torch

    blocks = [one for one in model.modules() if type(one).__name__.endswith("DecoderLayer")]
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        policy = ModuleWrapPolicy({type(block) for block in blocks})
        cuda = recorder.device == "cuda"
        device = torch.device(recorder.device, torch.cuda.current_device()) if cuda else torch.device("cpu")
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=device)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(recorder.device, (recorder.world_size,))
    for block in (*blocks, model):
        fully_shard(block, mesh=mesh)
    return model
