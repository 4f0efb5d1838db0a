"""Bytes of gradients and buckets under DistributedDataParallel, with and without gradients as views.

``layers`` square matrices are wrapped by DDP on ``world_size`` ranks and trained for three iterations; the third
counts, since buckets are laid out anew after the first. P is the number of parameters, b = 4 their bytes (on a CPU,
16-bit products leave buffers of oneDNN in the count).

Prediction: `gradient_bytes`, what is live after backward beyond what was live before wrapping, is b x P of buckets
and b x P of gradients, 2 b P; with ``gradient_as_bucket_view`` gradients are views into the buckets: b P.
``static_graph`` adds the map of used parameters on host and device, 2 x 4 bytes for each of the ``layers``
parameters. `cleared_bytes`, what stays once ``zero_grad`` has dropped the gradients, is the buckets.

Source: torch/csrc/distributed/c10d/reducer.cpp (initialize_buckets, initialize_local_used_map).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "gradient_as_bucket_view": True,
    "static_graph": False,
    "layers": 4,
    "hidden_size": 64,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"gradient_as_bucket_view": False},
    {"gradient_as_bucket_view": False, "hidden_size": 128},
    {"static_graph": True},
)
METRIC = "gradient_bytes"


def _parameters(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes after the third backward."""
    buckets = 4 * _parameters(parameters) + (8 * parameters["layers"] if parameters["static_graph"] else 0)
    gradients = 0 if parameters["gradient_as_bucket_view"] else 4 * _parameters(parameters)
    return {"gradient_bytes": buckets + gradients, "cleared_bytes": buckets}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.parameters": _parameters(parameters),
        "model.trainable_parameters": _parameters(parameters),
        "training.param_dtype": "float32",
        "training.sharding": "ddp",
        "training.gradient_as_bucket_view": parameters["gradient_as_bucket_view"],
        "training.peft": None,
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train three iterations."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    cuda = recorder.device == "cuda"
    if cuda:
        torch.cuda.set_device(recorder.rank % torch.cuda.device_count())
    dist.init_process_group("nccl" if cuda else "gloo")
    width = parameters["hidden_size"]
    model = torch.nn.Sequential(
        *(torch.nn.Linear(width, width, bias=False, device=recorder.device) for _ in range(parameters["layers"]))
    )
    inputs = torch.randn(2, width, device=recorder.device)
    before = recorder.live_bytes()
    with recorder.phase("load"):
        wrapped = DistributedDataParallel(
            model,
            gradient_as_bucket_view=parameters["gradient_as_bucket_view"],
            static_graph=parameters["static_graph"],
        )
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        cleared = recorder.live_bytes() - before
        with recorder.phase("forward"):
            loss = wrapped(inputs).sum()
        with recorder.phase("backward"):
            loss.backward()
        del loss
        after = recorder.live_bytes() - before
    recorder.result("gradient_bytes", after)
    recorder.result("cleared_bytes", cleared)
    dist.destroy_process_group()
