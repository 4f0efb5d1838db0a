"""Bytes of gradients between two micro batches under FSDP1, inside and outside of ``no_sync``.

``layers`` square matrices are each wrapped by ``FullyShardedDataParallel`` on ``world_size`` ranks, float32. Counted
is what is live after a first backward beyond what was live before its forward, on one rank.

Prediction, P parameters, w ranks:
- outside of ``no_sync`` the sharded gradient stays: 4 P / w.
- inside, nothing is reduced, and every rank keeps the whole gradient: 4 P, however many ranks.
- inside, under ``shard_grad_op``, the gathered parameters are not freed after backward either: + 4 P.
`last_bytes`, after a second micro batch outside of it, is 4 P / w in any case.

Source: torch/distributed/fsdp/_runtime_utils.py (_post_backward_hook, _should_free_in_backward).
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
    "no_sync": True,
    "strategy": "full_shard",
    "layers": 4,
    "hidden_size": 64,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"hidden_size": 96, "layers": 3},
    {"no_sync": False},
    {"strategy": "shard_grad_op"},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"strategy": ("full_shard", "shard_grad_op")}
METRIC = "gradient_bytes"


def _parameters(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes after the first and the second micro batch."""
    whole = 4 * _parameters(parameters)
    shard = whole // parameters["world_size"]
    gathered = whole if parameters["no_sync"] and parameters["strategy"] == "shard_grad_op" else 0
    return {"gradient_bytes": (whole if parameters["no_sync"] else shard) + gathered, "last_bytes": shard}


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
        "training.fsdp_version": 1,
        "training.fsdp_sharding_strategy": parameters["strategy"],
        "training.param_dtype": "float32",
        "training.compute_dtype": "float32",
        "training.gradient_accumulation_steps": 2,
        "training.sync_each_batch": not parameters["no_sync"],
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run two micro batches."""
    import contextlib

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    cuda = recorder.device == "cuda"
    if cuda:
        torch.cuda.set_device(recorder.rank % torch.cuda.device_count())
    dist.init_process_group("nccl" if cuda else "gloo")
    options: dict[str, Any] = {
        "sharding_strategy": getattr(ShardingStrategy, parameters["strategy"].upper()),
        # Flat parameters are the parameters then, and their gradients can be dropped.
        "use_orig_params": False,
        "device_id": torch.device(recorder.device, torch.cuda.current_device()) if cuda else torch.device("cpu"),
    }
    width = parameters["hidden_size"]
    with recorder.phase("load"):
        model = FullyShardedDataParallel(
            torch.nn.Sequential(
                *(
                    FullyShardedDataParallel(torch.nn.Linear(width, width, bias=False), **options)
                    for _ in range(parameters["layers"])
                )
            ),
            **options,
        )
    inputs = torch.randn(2, width, device=recorder.device)

    def train(context: Any) -> None:
        with context:
            with recorder.phase("forward"):
                loss = model(inputs).sum()
            with recorder.phase("backward"):
                loss.backward()

    # The first iteration initialises lazily; it is not counted.
    train(contextlib.nullcontext())
    for weight in model.parameters():
        weight.grad = None
    before = recorder.live_bytes()
    train(model.no_sync() if parameters["no_sync"] else contextlib.nullcontext())
    recorder.result("gradient_bytes", recorder.live_bytes() - before)
    train(contextlib.nullcontext())
    recorder.result("last_bytes", recorder.live_bytes() - before)
    dist.destroy_process_group()
