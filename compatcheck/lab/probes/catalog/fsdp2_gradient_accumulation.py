"""Bytes of gradients between two micro batches under FSDP2, with and without synchronisation.

``layers`` square matrices are each wrapped by ``fully_shard`` on ``world_size`` ranks, parameters float32, computed
in bfloat16. Two micro batches are run; before the first, ``set_requires_gradient_sync`` is called with ``sync``, and
``set_reshard_after_backward`` with ``reshard``. Counted is what is live after the first backward beyond what was live
before its forward, on one rank.

Prediction, P parameters, w ranks, b bytes of ``reduce_dtype``:
- with synchronisation only the sharded gradient in the parameters' own float32 stays: 4 P / w.
- without, every rank keeps the whole gradient, in bfloat16, or in the reduce dtype where that differs: b P, however
  many ranks. A framework's "no_sync" for FSDP2 is this call: ``through`` ``accelerate`` prepares the model with accelerate and
  runs the first micro batch inside its ``no_sync``, which has no ``reshard`` and is ``sync`` where it is not entered.
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

PACKAGES = ("torch", "accelerate")
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "through": "torch",
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
    {"through": "accelerate", "layers": 6},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "through": ("torch", "accelerate"),
    "reduce_dtype": ("bfloat16", "float32"),
}
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


def needs(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that such a run uses."""
    return ("torch", "accelerate") if parameters["through"] == "accelerate" else ("torch",)


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.parameters": _parameters(parameters),
        "model.parameters_in_blocks": _parameters(parameters),
        "model.trainable_parameters": _parameters(parameters),
        "training.framework": "accelerate" if parameters["through"] == "accelerate" else "custom",
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
    import contextlib

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
    accelerator = _accelerator(policy, recorder) if parameters["through"] == "accelerate" else None
    with recorder.phase("load"):
        if accelerator is not None:
            # It takes no model alone.
            model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters()))
        else:
            for layer in model:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            fully_shard(model, mesh=mesh, mp_policy=policy)
    inputs = torch.randn(2, width, device=recorder.device)

    def train(*, sync: bool, reshard: bool) -> None:
        if accelerator is None:
            model.set_requires_gradient_sync(sync)
            model.set_reshard_after_backward(reshard)
        with contextlib.nullcontext() if accelerator is None or sync else accelerator.no_sync(model):
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


def _accelerator(policy: Any, recorder: Recorder) -> Any:
    """Return an accelerator that shards each linear layer."""
    import functools

    import accelerate
    import torch
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    if "fsdp_version" not in getattr(accelerate.FullyShardedDataParallelPlugin, "__dataclass_fields__", {}):
        recorder.unsupported(f"accelerate {accelerate.__version__} has no FSDP2")
    if recorder.device == "cpu":  # where accelerate would take DDP in its place
        state = accelerate.PartialState(cpu=True)
        state._shared_state["distributed_type"] = accelerate.DistributedType.MULTI_GPU
    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={torch.nn.Linear})
    plugin = accelerate.FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy=wrap, mixed_precision_policy=policy, cpu_ram_efficient_loading=False
    )
    return accelerate.Accelerator(cpu=recorder.device == "cpu", fsdp_plugin=plugin)
