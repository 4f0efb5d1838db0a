"""Bytes that FSDP2's reduce-scatter takes in backward, by the dtype gradients are reduced in.

``layers`` square matrices of g elements are each wrapped by ``fully_shard`` on w ranks, parameters float32, computed
in bfloat16; the peak of a backward above what was live before it is taken twice, with gradients reduced in
``reduce_dtype`` and in bfloat16. `extra_bytes` is the difference; whatever else lives in backward is the same in both
and drops out.

Prediction for float32, all of one layer, since a layer's input is freed before the next one's is made (torch 2.13,
which caps these buffers at one; 2.12 keeps those of several parameter groups of a module):
- the input, the whole gradient of the layer copied to the reduce dtype: (4 - 2) g;
- its output, this rank's share: (4 - 2) g / w;
- on gloo one more copy of the input, split by rank: (4 - 2) g. NCCL has none.
In sum 4 g + 2 g / w. In bfloat16, 0; what is kept of a layer afterwards is its float32 gradient shard in both.

Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cpu",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "reduce_dtype": "float32",
    "layers": 4,
    "hidden_size": 64,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"hidden_size": 96, "layers": 3}, {"reduce_dtype": "bfloat16"})
CHOICES: Mapping[str, tuple[Any, ...]] = {"reduce_dtype": ("bfloat16", "float32")}
METRIC = "extra_bytes"

_BACKWARDS = 4


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes of one layer's buffers above those in bfloat16."""
    layer = parameters["hidden_size"] ** 2
    wide = parameters["reduce_dtype"] == "float32"
    return {"extra_bytes": 4 * layer + 2 * layer // parameters["world_size"] if wide else 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    weights = parameters["layers"] * parameters["hidden_size"] ** 2
    return {
        "model.parameters": weights,
        "model.trainable_parameters": weights,
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.param_dtype": "float32",
        "training.compute_dtype": "bfloat16",
        "training.reduce_dtype": parameters["reduce_dtype"],
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run a backward and watch what reductions take."""
    import torch
    import torch.distributed as dist

    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        try:
            from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
        except ImportError:
            recorder.unsupported("needs FSDP2 (fully_shard), torch >= 2.4")
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (recorder.world_size,))
    width = parameters["hidden_size"]

    def reduced_in(dtype: Any) -> int:
        """Return the peak of a backward: the lowest of several, since gloo's own threads free what they hold a little late."""
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(parameters["layers"])))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=dtype)
        for layer in model:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        inputs = torch.randn(2, width)
        peaks = []
        for _ in range(_BACKWARDS):
            for weight in model.parameters():
                weight.grad = None
            with recorder.phase("forward"):
                held = [model(inputs).float().sum()]
            with recorder.phase("backward"):
                peaks.append(recorder.measure(lambda held=held: held.pop().backward())[1])  # type: ignore[misc]  # bound at once
        return min(peaks[1:])

    narrow = reduced_in(torch.bfloat16)
    recorder.result("extra_bytes", reduced_in(getattr(torch, parameters["reduce_dtype"])) - narrow)
    dist.destroy_process_group()
