"""Every allocation and free of a run, in order, with the operator, the module and the tensor it was for."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from probe_worker.accounting import StorageAccounting, _plain_tensors
from torch.nn.modules import module as modules
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


RESIZED = "UntypedStorage.resize_"
"""Stands for an operator where memory comes back to a tensor that was emptied, as FSDP does with gathered parameters."""


_DEVICE = torch.ops.prim.device.default


class Allocation(NamedTuple):
    """One storage, or memory that an operator takes and gives back inside."""

    size: int
    """Bytes."""
    operator: str
    module: str
    """Path of the innermost module whose forward runs; in backward, of the one whose gradient is computed."""
    shape: tuple[int, ...]
    dtype: str
    phase: str


class Tracker(StorageAccounting):
    """Storage accounting that keeps what it saw: replay of its events gives the same live bytes at every point."""

    def __init__(self, inside: Callable[[Any, Any], tuple[int, ...]] | None = None) -> None:
        """Start with nothing seen.

        Args:
            inside: operator and arguments → sizes of what it takes and gives back inside; None takes nothing.
        """
        super().__init__()
        self._peak = 0
        self.allocations: list[Allocation] = []
        """By identifier."""
        self.events: list[tuple[int, int, int]] = []
        """Identifier, bytes (0 is a free) and stream."""
        self.phase = "load"
        self.stream = 0
        self.peak_event = 0
        """Number of events at which the peak since the last reset was reached."""
        self._inside = inside
        self._operator_now = ""
        self._path: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let torch wrap no call of this mode for a compiler that is not there."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and note the storages of what it returns."""
        if func is _DEVICE:  # asked at every turn, and no work
            device = getattr(args[0], "fake_device", None)
            return func(*args) if device is None else device
        self._operator_now = str(func)
        taken = [self._take(size, (), "") for size in self._inside(func, args)] if self._inside is not None else []
        result = func(*args, **(kwargs or {}))
        self._operator_now = str(func)
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                for tensor in _plain_tensors(value):
                    self._count(tensor)
        for identifier in taken:
            self._give(identifier)
        return result

    def _take(self, size: int, shape: tuple[int, ...], dtype: str) -> int:
        identifier = len(self.allocations)
        self.allocations.append(Allocation(size, self._operator_now, self._where(), shape, dtype, self.phase))
        if size:
            self.events.append((identifier, size, self.stream))
            self._live += size
            if self._live > self._peak:
                self._peak = self._live
                self._operator = self._operator_now
                self.peak_event = len(self.events)
        return identifier

    def _give(self, identifier: int) -> None:
        size = self.allocations[identifier].size
        if size:
            self.events.append((identifier, 0, self.stream))
            self._live -= size

    def keep(self, size: int, what: str) -> None:
        """Note memory that a library takes at its first use and keeps."""
        self._operator_now = what
        self._take(size, (), "")

    def _count(self, tensor: torch.Tensor) -> None:
        device = getattr(tensor, "fake_device", None) or tensor.device  # the second of a fake tensor is an operator
        if device.type == "meta":  # numbers that a kernel hands on without memory on the device
            return
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and opaque tensors have none
            return
        key = storage._cdata
        known = self._storages.get(key)
        if known is not None:
            if self.allocations[known[0]].size != storage.nbytes():
                self._follow(storage)
            return

        def forget(_: Any, key: int = key) -> None:
            self._give(self._storages.pop(key)[0])

        reference = weakref.ref(storage, forget)
        dtype = str(tensor.dtype)[6:]
        self._storages[key] = (self._take(storage.nbytes(), tuple(tensor.shape), dtype), reference)

    def _follow(self, storage: Any) -> None:
        """Take up the new size of a storage that is counted: the old one is freed, unless it was empty."""
        known = self._storages.get(storage._cdata)
        if known is not None:
            before = self.allocations[known[0]]
            self._give(known[0])
            self._operator_now = RESIZED
            self._storages[storage._cdata] = (self._take(storage.nbytes(), before.shape, before.dtype), known[1])

    def identifier(self, tensor: torch.Tensor) -> int | None:
        """Return the allocation that a tensor lies in, or None when it is not counted."""
        (plain,) = _plain_tensors(tensor)
        known = self._storages.get(plain.untyped_storage()._cdata)
        return None if known is None else known[0]

    def live_identifiers(self) -> set[int]:
        """Return the allocations that are live now."""
        return {identifier for identifier, _ in self._storages.values()}

    def reset(self) -> None:
        """Begin a phase: the peak is what is live now."""
        super().reset()
        self.peak_event = len(self.events)

    @contextlib.contextmanager
    def watch(self, model: Any) -> Iterator[None]:
        """Note in which module of a model every tensor is made."""
        names = {id(module): name.replace("_fsdp_wrapped_module.", "") for name, module in model.named_modules()}

        def enter(module: Any, _: Any) -> None:
            self._path.append(names.get(id(module), ""))

        def leave(_module: Any, _inputs: Any, output: Any) -> None:
            path = self._path.pop() if self._path else ""
            for value in tree_leaves(output):
                node = value.grad_fn if isinstance(value, torch.Tensor) else None
                if node is not None:
                    node.metadata.setdefault("path", path)

        handles = [
            modules.register_module_forward_pre_hook(enter),
            modules.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _where(self) -> str:
        if self._path:
            return self._path[-1]
        node = torch._C._current_autograd_node()
        if node is not None and "path" in node.metadata:
            self._last = node.metadata["path"]
        return self._last if node is not None else ""

    _last = ""
