"""DTensorSpec objects, and tensors, that repeated operations over DTensors leave behind in host memory.

One rank, parameters distributed over a mesh of one device. ``pattern``:

- ``optimizer``: AdamW of ``implementation`` steps over ``tensors`` parameters. The count of ``DTensorSpec`` objects
  after a garbage collection must not grow with steps: torch 2.10 to 2.12 cache operations by arguments that change
  every step, or hold a reference too many (pytorch#178276, pytorch#181761, pytorch#188174).
- ``shapes``: a product of matrices whose length is another each time, as batches of changing length are. Sharding
  decisions are cached by shape without a limit.

Prediction: `kept_per_step` is 0. For ``optimizer`` it counts specs; for ``shapes`` bytes of tensors, because there
specs do stay, by design: caches hold shapes, not values. How many a new shape adds is stated as `specs_per_step`,
without a prediction: 8 on torch 2.13.
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
DEFAULTS: Mapping[str, Any] = {
    "pattern": "optimizer",
    "implementation": "foreach",
    "tensors": 6,
    "side": 16,
    "steps": 8,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"implementation": "fused", "tensors": 10},
    {"implementation": "for_loop", "steps": 5},
    {"pattern": "shapes"},
    {"pattern": "shapes", "steps": 14},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "pattern": ("optimizer", "shapes"),
    "implementation": ("foreach", "for_loop", "fused"),
}
METRIC = "kept_per_step"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return what one step leaves behind: nothing."""
    return {"kept_per_step": 0, "tensor_bytes_per_step": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: objects are counted."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    elements = parameters["tensors"] * parameters["side"] ** 2
    return {
        "model.parameters": elements,
        "model.trainable_parameters": elements,
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": parameters["implementation"],
        "hardware.world_size": 1,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Repeat, and count."""
    import gc

    import torch
    import torch.distributed as dist

    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard, distribute_tensor
    except ImportError:
        recorder.unsupported("needs torch.distributed.tensor, torch >= 2.5")
    backend = "nccl" if recorder.device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh(recorder.device, (1,))
    side = parameters["side"]

    def distributed(rows: int) -> Any:
        return distribute_tensor(torch.randn(rows, side, device=recorder.device), mesh, [Shard(0)])

    def specs() -> int:
        gc.collect()
        return sum(1 for value in gc.get_objects() if type(value).__name__ == "DTensorSpec")

    weights = [torch.nn.Parameter(distributed(side)) for _ in range(parameters["tensors"])]
    if parameters["pattern"] == "optimizer":
        implementation = parameters["implementation"]
        options = {"fused": True} if implementation == "fused" else {"foreach": implementation == "foreach"}
        optimizer = torch.optim.AdamW(weights, **options)
        for weight in weights:
            weight.grad = distributed(side)

        def step(number: int) -> None:
            optimizer.step()
    else:

        def step(number: int) -> None:
            with torch.no_grad():
                assert isinstance(distributed(side + number) @ weights[0].T, DTensor)

    for number in range(3):
        step(number)
    before, live = specs(), recorder.live_bytes()
    with recorder.phase("step"):
        for number in range(parameters["steps"]):
            step(3 + number)
    kept = (specs() - before) / parameters["steps"]
    tensor_bytes = (recorder.live_bytes() - live) / parameters["steps"]
    recorder.result("specs_per_step", kept)
    recorder.result("tensor_bytes_per_step", tensor_bytes)
    recorder.result("kept_per_step", kept if parameters["pattern"] == "optimizer" else tensor_bytes)
    dist.destroy_process_group()
