"""FSDP on one process: rank 0 of a process group that exists in name only."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import torch
from probe_worker.recorder import UnsupportedError

from .step_module import find_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS_SECONDS = 0.2
"""gloo's threads hold the tensors of a finished operation until they are scheduled again."""


class Sharding:
    """A mesh of ranks, of which this is the first; collectives on it move nothing."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Keep what to do.

        Args:
            options: ``world_size``, ``version`` of FSDP, ``param_dtype`` and ``reduce_dtype`` of the policy; of version 2
                ``reshard_after_forward``, of version 1 ``strategy``, ``use_orig_params`` and ``wraps_frozen_apart``; ``real``
                makes this one of several processes, as RANK and its like say.
        """
        self.options = options
        self._mesh: Any = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Any:
        """Make the mesh, which must be done outside of fake tensors."""
        import torch.distributed as dist

        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.testing._internal.distributed.fake_pg import FakeStore
        except ImportError as error:
            message = f"torch {torch.__version__} has no process group in name only"
            raise UnsupportedError(message) from error
        size = self.options["world_size"]
        if self.options.get("real"):
            dist.init_process_group("gloo")
            self._stack.enter_context(_moves_as_nccl(size))
        else:
            self._stack.enter_context(_addresses())
            dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        self._stack.callback(dist.destroy_process_group)
        self._mesh = init_device_mesh("cpu", (size,))
        return self

    def __exit__(self, *arguments: object) -> None:
        """Leave the group."""
        self._stack.close()

    def shard(self, model: Any, tracker: Any) -> Any:
        """Shard every block and then the rest of a model, as transformers, accelerate and Fabric do; return what is called."""
        blocks = find_blocks(model)
        if not blocks:
            message = f"{type(model).__name__} does not say which of its modules are blocks"
            raise UnsupportedError(message)
        dtypes = {
            key: getattr(torch, self.options[key]) for key in ("param_dtype", "reduce_dtype") if self.options[key]
        }
        shard = self._shard_flat if self.options.get("version") == 1 else self._shard_each
        model = shard(model, blocks, dtypes)
        self._stack.enter_context(_streams(tracker))
        return model

    def _shard_each(self, model: Any, blocks: list[Any], dtypes: dict[str, Any]) -> Any:
        """Shard each parameter (FSDP2)."""
        try:
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        except ImportError as error:
            message = f"torch {torch.__version__} has no fully_shard (2.6 and newer)"
            raise UnsupportedError(message) from error
        given = {
            "mesh": self._mesh,
            "reshard_after_forward": self.options["reshard_after_forward"],
            "mp_policy": MixedPrecisionPolicy(**dtypes),
        }
        for block in blocks:
            fully_shard(block, **given)
        return fully_shard(model, **given) or model

    def _shard_flat(self, model: Any, blocks: list[Any], dtypes: dict[str, Any]) -> Any:
        """Shard one flat parameter for each block and one for the rest (FSDP1)."""
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
        from torch.distributed.fsdp.wrap import CustomPolicy

        units = {id(block) for block in blocks}
        apart = self.options["wraps_frozen_apart"]

        def is_unit(module: Any) -> bool:
            # peft.utils.other.fsdp_auto_wrap_policy: modules without children whose weight is trained
            weight = None if any(module.children()) else getattr(module, "weight", None)
            return id(module) in units or (apart and weight is not None and weight.requires_grad)

        return FullyShardedDataParallel(
            model,
            sharding_strategy=getattr(ShardingStrategy, self.options["strategy"].upper()),
            auto_wrap_policy=CustomPolicy(is_unit),
            mixed_precision=MixedPrecision(**dtypes, buffer_dtype=dtypes.get("param_dtype")) if dtypes else None,
            use_orig_params=self.options["use_orig_params"],
            device_id=torch.device("cpu"),
        )


@contextlib.contextmanager
def _addresses() -> Iterator[None]:
    """Give storages of fake tensors addresses, by which FSDP1 tells what is gathered: of their own, 0 of what is empty."""
    of_storage, of_tensor = torch.UntypedStorage.data_ptr, torch.Tensor.data_ptr

    def storage_address(storage: Any) -> int:
        return int(storage._cdata) if storage.nbytes() else 0

    def tensor_address(tensor: Any) -> int:
        address = storage_address(tensor.untyped_storage())
        return address + tensor.storage_offset() * tensor.element_size() if address else 0

    torch.UntypedStorage.data_ptr, torch.Tensor.data_ptr = storage_address, tensor_address
    try:
        yield
    finally:
        torch.UntypedStorage.data_ptr, torch.Tensor.data_ptr = of_storage, of_tensor


@contextlib.contextmanager
def _moves_as_nccl(size: int) -> Iterator[None]:
    """Reduce and scatter without a copy, as NCCL does and gloo does not."""
    import torch.distributed as dist

    def scatter(output: Any, input: Any, **options: Any) -> None:  # noqa: A002 (torch's own signature)
        dist.all_reduce(input, op=options.get("op", dist.ReduceOp.SUM), group=options.get("group"))
        time.sleep(THREADS_SECONDS)
        output.copy_(input.view(size, -1)[dist.get_rank()].view_as(output))

    names = ("reduce_scatter_tensor", "reduce_scatter_single")  # the second is its name from torch 2.13 on
    originals = {name: getattr(dist, name) for name in names if hasattr(dist, name)}
    for name in originals:
        setattr(dist, name, scatter)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


@contextlib.contextmanager
def _streams(tracker: Any) -> Iterator[None]:
    """Tell a tracker on which stream tensors are made: torch's streams of a CPU do nothing, but FSDP names them."""
    original = torch.cpu.stream
    known: dict[int, int] = {}

    @contextlib.contextmanager
    def stream(chosen: Any) -> Iterator[None]:
        before = getattr(tracker, "stream", 0)
        tracker.stream = known.setdefault(id(chosen), len(known) + 1) if chosen is not None else before
        try:
            with original(chosen):
                yield
        finally:
            tracker.stream = before

    torch.cpu.stream = stream
    try:
        yield
    finally:
        torch.cpu.stream = original
