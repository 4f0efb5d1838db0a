"""Buffers of asynchronous NCCL collectives that the allocator cannot reuse until the device has caught up.

One process is a group of its own. The device is kept busy while the host queues ``count`` collectives, each on a new
buffer that is freed right after ``wait()``.

Prediction. A healthy release keeps a reference until ``wait()`` and then gives the block back to the allocator at
once: the next buffer takes the same one, and ``reserved_bytes`` is one buffer. Where buffers are marked with
``record_stream``, a block stays taken until the communication stream is seen to be done, which the busy device
delays: ``reserved_bytes`` is count x buffer. ``avoid_record_streams`` sets TORCH_NCCL_AVOID_RECORD_STREAMS=1, which
has the healthy effect in 2.1 to 2.7 and none from 2.8 on, where it is not needed.

Sources: https://github.com/pytorch/pytorch/pull/148590 (2.8) and ProcessGroupNCCL.hpp of 2.7.1 and 2.8.0; reports:
https://github.com/pytorch/pytorch/issues/147168. NCCL may take a group of one out of its way, but ProcessGroupNCCL
handles the tensors all the same. Derived by reading; `compatcheck probe list` says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"collective": "all_reduce", "mebibytes": 32, "count": 8, "avoid_record_streams": False}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"collective": "all_gather"},
    {"mebibytes": 64, "count": 4},
    {"avoid_record_streams": True},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"collective": ("all_reduce", "all_gather")}
METRIC = "reserved_bytes"
_BUSY_CYCLES = 2_000_000_000
"""About a second: far longer than queueing a few collectives takes."""


def environ(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the variable; with expandable segments reserved bytes would be counted in other pages."""
    return {
        "TORCH_NCCL_AVOID_RECORD_STREAMS": "1" if parameters["avoid_record_streams"] else None,
        "PYTORCH_CUDA_ALLOC_CONF": None,
        "PYTORCH_ALLOC_CONF": None,
    }


def _buffers(parameters: Mapping[str, Any]) -> int:
    """Return tensors per collective: a gathering one has an output beside its input."""
    return 2 if parameters["collective"] == "all_gather" else 1


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the buffers of one collective."""
    return {"reserved_bytes": parameters["mebibytes"] * 2**20 * _buffers(parameters)}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the buffers of one more collective: the one queued last may overlap with the next."""
    return parameters["mebibytes"] * 2**20 * _buffers(parameters)


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    described: dict[str, Any] = {"run.async_tensor_parallel": True}
    if parameters["avoid_record_streams"]:
        described["env.TORCH_NCCL_AVOID_RECORD_STREAMS"] = "1"
    return described


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Queue collectives behind a busy device."""
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_nccl_available():
        recorder.unsupported("this torch has no NCCL")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    size = parameters["mebibytes"] * 2**20

    def queue() -> None:
        buffer = torch.empty(size, dtype=torch.uint8, device=recorder.device)
        if parameters["collective"] == "all_gather":
            gathered = torch.empty(size, dtype=torch.uint8, device=recorder.device)
            work = dist.all_gather_into_tensor(gathered, buffer, async_op=True)
        else:
            work = dist.all_reduce(buffer, async_op=True)
        work.wait()

    try:
        queue()  # makes the communicator
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        with recorder.phase("collectives"):
            torch.cuda._sleep(_BUSY_CYCLES)
            for _ in range(parameters["count"]):
                queue()
            reserved = torch.cuda.memory_reserved() - before
        recorder.result("reserved_bytes", reserved)
        recorder.result("buffers_held", reserved / size)
    finally:
        dist.destroy_process_group()
