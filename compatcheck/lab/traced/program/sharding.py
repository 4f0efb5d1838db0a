"""FSDP2 on one process: rank 0 of a process group that exists in name only."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from probe_worker.recorder import UnsupportedError

from .step_module import find_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sharding:
    """A mesh of ranks, of which this is the first; collectives on it move nothing."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Keep what to do.

        Args:
            options: ``world_size``, ``reshard_after_forward``, and ``param_dtype`` and ``reduce_dtype`` of the policy; ``real``
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
        else:
            dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        self._stack.callback(dist.destroy_process_group)
        self._mesh = init_device_mesh("cpu", (size,))
        return self

    def __exit__(self, *arguments: object) -> None:
        """Leave the group."""
        self._stack.close()

    def shard(self, model: Any, tracker: Any) -> None:
        """Shard every block and then the rest of a model, as transformers and accelerate do."""
        try:
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        except ImportError as error:
            message = f"torch {torch.__version__} has no fully_shard (2.6 and newer)"
            raise UnsupportedError(message) from error
        dtypes = {
            key: getattr(torch, self.options[key]) for key in ("param_dtype", "reduce_dtype") if self.options[key]
        }
        given = {
            "mesh": self._mesh,
            "reshard_after_forward": self.options["reshard_after_forward"],
            "mp_policy": MixedPrecisionPolicy(**dtypes),
        }
        blocks = find_blocks(model)
        if not blocks:
            message = f"{type(model).__name__} does not say which of its modules are blocks"
            raise UnsupportedError(message)
        for block in blocks:
            fully_shard(block, **given)
        fully_shard(model, **given)
        self._stack.enter_context(_streams(tracker))


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
