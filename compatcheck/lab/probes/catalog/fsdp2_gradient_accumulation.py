"""Bytes of gradients between two micro batches under FSDP2, with and without synchronisation.

``layers`` square matrices are each wrapped by ``fully_shard`` on ``world_size`` ranks, parameters float32, computed
in bfloat16. Two micro batches are run; before the first, ``set_requires_gradient_sync`` is called with ``sync``, and
``set_reshard_after_backward`` with ``reshard``. Counted is what is live after the first backward beyond what was live
before its forward, on one rank.

Prediction, P parameters, w ranks, b bytes of ``reduce_dtype``:
- with synchronisation only the sharded gradient in the parameters' own float32 stays: 4 P / w.
- without, every rank keeps the whole gradient, in bfloat16, or in the reduce dtype where that differs: b P, however
  many ranks. A framework's "no_sync" for FSDP2 is this call.
- without resharding after backward the gathered bfloat16 parameters stay too: + 2 P.
`last_bytes`, after the second micro batch with synchronisation and resharding, is 4 P / w in any case.

Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (post_backward) and _fsdp_param.py
(to_accumulated_grad_if_needed).
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
    "world_size": 2,
    "sync": False,
    "reshard": True,
    "reduce_dtype": "float32",
    "layers": 4,
    "hidden_size": 64,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"sync": True, "layers": 6},
    {"reduce_dtype": "bfloat16", "hidden_size": 96},
    {"reshard": False},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"reduce_dtype": ("bfloat16", "float32")}
METRIC = "gradient_bytes"


def _parameters(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes after the first and the second micro batch."""
    weights = _parameters(parameters)
    shard = 4 * weights // parameters["world_size"]
    whole = (4 if parameters["reduce_dtype"] == "float32" else 2) * weights
    gathered = 0 if parameters["reshard"] else 2 * weights
    return {"gradient_bytes": (shard if parameters["sync"] else whole) + gathered, "last_bytes": shard}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.parameters": _parameters(parameters),
        "model.parameters_in_blocks": _parameters(parameters),
        "model.trainable_parameters": _parameters(parameters),
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.param_dtype": "float32",
        "training.compute_dtype": "bfloat16",
        "training.reduce_dtype": parameters["reduce_dtype"],
        "training.gradient_accumulation_steps": 2,
        "training.sync_each_batch": parameters["sync"],
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run two micro batches."""
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

    cuda = recorder.device == "cuda"
    if cuda:
        torch.cuda.set_device(recorder.rank % torch.cuda.device_count())
    dist.init_process_group("nccl" if cuda else "gloo")
    mesh = init_device_mesh(recorder.device, (recorder.world_size,))
    width = parameters["hidden_size"]
    model = torch.nn.Sequential(
        *(torch.nn.Linear(width, width, bias=False, device=recorder.device) for _ in range(parameters["layers"]))
    )
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, parameters["reduce_dtype"]))
    with recorder.phase("load"):
        for layer in model:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    inputs = torch.randn(2, width, device=recorder.device)

    def train(*, sync: bool, reshard: bool) -> None:
        model.set_requires_gradient_sync(sync)
        model.set_reshard_after_backward(reshard)
        with recorder.phase("forward"):
            loss = model(inputs).float().sum()
        with recorder.phase("backward"):
            loss.backward()

    # The first iteration initialises lazily; it is not counted.
    train(sync=True, reshard=True)
    for weight in model.parameters():
        weight.grad = None
    before = recorder.live_bytes()
    train(sync=parameters["sync"], reshard=parameters["reshard"])
    recorder.result("gradient_bytes", recorder.live_bytes() - before)
    train(sync=True, reshard=True)
    recorder.result("last_bytes", recorder.live_bytes() - before)
    dist.destroy_process_group()
