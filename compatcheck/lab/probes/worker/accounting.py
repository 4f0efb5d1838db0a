"""Three ways of counting live tensor bytes: tensor storages, the CPU allocator, the CUDA caching allocator."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


def _plain_tensors(value: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors that hold the bytes of one: a wrapper subclass such as DTensor has its storage inside."""
    flatten = getattr(value, "__tensor_flatten__", None)
    if flatten is None or isinstance(value, torch.nn.Parameter):
        inner = getattr(value, "_local_tensor", None)
        return [value] if inner is None else [inner]
    parts = [
        getattr(value, name) for name in flatten()[0]
    ]  # newer torch lists what is no tensor, the mesh of a DTensor, too
    return [tensor for part in parts if isinstance(part, torch.Tensor) for tensor in _plain_tensors(part)]


class StorageAccounting(TorchDispatchMode):
    """Every tensor storage that an operator returns, until it is freed; on real and on fake tensors alike.

    Memory that an operator takes and gives back inside is not seen. The operator that reached the peak is. Under a mode, whatever
    it does, autograd adds gradients that meet out of place, so that a peak of backward may be one tensor above what a run has.
    """

    name = "storages"

    def __init__(self) -> None:
        """Start with nothing counted: enter before the first tensor of interest is made."""
        super().__init__()
        self._live = 0
        self._peak = 0
        self._operator: str | None = None
        self._storages: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._resize: Any = None

    def __enter__(self) -> Any:
        """Begin to count; storages resized in place (FSDP2 frees what it gathered so) are followed too."""
        self._resize = torch.UntypedStorage.resize_
        resize, followed = self._resize, self._follow

        def resize_(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            followed(storage)
            return result

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *arguments: object) -> None:
        """Stop counting."""
        super().__exit__(*arguments)
        torch.UntypedStorage.resize_ = self._resize

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count the storages of what it returns."""
        result = func(*args, **(kwargs or {}))
        for value in tree_flatten(result)[0]:
            if isinstance(value, torch.Tensor):
                for tensor in _plain_tensors(value):
                    self._count(tensor)
        if self._live > self._peak:
            self._peak = self._live
            self._operator = str(func)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and opaque tensors have none
            return
        key = storage._cdata
        known = self._storages.get(key)
        bytes_ = storage.nbytes()
        if known is not None:
            if known[0] != bytes_:
                self._follow(storage)
            return

        def forget(_: Any, key: int = key) -> None:
            self._live -= self._storages.pop(key)[0]

        self._storages[key] = (bytes_, weakref.ref(storage, forget))
        self._live += bytes_

    def _follow(self, storage: Any) -> None:
        """Take up the new size of a storage that is counted."""
        known = self._storages.get(storage._cdata)
        if known is not None:
            bytes_ = storage.nbytes()
            self._live += bytes_ - known[0]
            self._storages[storage._cdata] = (bytes_, known[1])
            self._peak = max(self._peak, self._live)

    def reset(self) -> None:
        """Begin a phase: the peak is what is live now."""
        self._peak, self._operator = self._live, None

    def live(self) -> int:
        """Return bytes live now."""
        return self._live

    def peak(self) -> int:
        """Return the highest sum since the last reset."""
        return self._peak

    def operator(self) -> str | None:
        """Name the operator that reached the peak."""
        return self._operator

    def device_numbers(self) -> dict[str, int]:
        """Return nothing: there is no device."""
        return {}


class _OutsidePython:
    """Common to the accountings that a counter outside of Python keeps: without a mode autograd adds in place where it can."""

    def __enter__(self) -> Any:
        """Begin: there is nothing to enter."""
        return self

    def __exit__(self, *arguments: object) -> None:
        """End: there is nothing to leave."""

    def operator(self) -> str | None:
        """Return nothing: only a mode sees operators, and under one autograd holds more (see `StorageAccounting`)."""
        return None

    def device_numbers(self) -> dict[str, int]:
        """Return nothing: there is no device."""
        return {}


class AllocatorAccounting(_OutsidePython):
    """Every block of the CPU allocator, counted by the preloaded `memshim.c`; temporaries inside operators included."""

    name = "allocator"

    def __init__(self) -> None:
        """Take what is live now as the base: what another task left behind is not this one's.

        Raises:
            OSError: the counter was not preloaded.
        """
        self._shim = ctypes.CDLL(None)
        for name in ("memshim_live", "memshim_peak"):
            try:
                getattr(self._shim, name).restype = ctypes.c_long
            except AttributeError as error:
                message = "the allocator's counter is not loaded"
                raise OSError(message) from error
        self._base = int(self._shim.memshim_live())

    def reset(self) -> None:
        """Begin a phase: the peak is what is live now."""
        self._shim.memshim_reset()

    def live(self) -> int:
        """Return bytes live now, beyond the base."""
        return int(self._shim.memshim_live()) - self._base

    def peak(self) -> int:
        """Return the highest sum since the last reset, beyond the base."""
        return int(self._shim.memshim_peak()) - self._base


class CudaAccounting(_OutsidePython):
    """What is requested of PyTorch's caching allocator, by its own statistics, and what the driver says is used.

    Requested bytes are those of the tensors; allocated ones are rounded up to 512 for each, which no derivation counts.
    """

    name = "cuda"

    def __init__(self) -> None:
        """Take what is allocated now as the base, and give back what earlier tasks left cached: it is not this one's."""
        gc.collect()
        torch.cuda.empty_cache()
        self._base = self._count("current")

    @staticmethod
    def _count(which: str) -> int:
        statistics = torch.cuda.memory_stats()
        # torch before 2.1 does not count requests.
        return int(statistics.get(f"requested_bytes.all.{which}", statistics.get(f"allocated_bytes.all.{which}", 0)))

    def reset(self) -> None:
        """Begin a phase: peaks are what is live now."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def live(self) -> int:
        """Return bytes live now, beyond the base."""
        return self._count("current") - self._base

    def peak(self) -> int:
        """Return the highest number of live bytes since the last reset, beyond the base."""
        return self._count("peak") - self._base

    def device_numbers(self) -> dict[str, int]:
        """Return what is reserved, and what the driver counts as used on the device by anyone."""
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return {"peak_reserved_bytes": torch.cuda.max_memory_reserved(), "device_used_bytes": total - free}


def take_workspaces(device: str) -> None:
    """Multiply forward and backward once, so that what a library keeps from its first product on is in the base.

    cuBLAS takes a workspace for every handle and stream from torch's allocator, and keeps it: 8,519,680 bytes, or 32 MiB on
    compute capability 9. autograd's thread has a handle of its own
    (https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/CublasHandlePool.cpp).
    """
    left = torch.ones(64, 64, device=device, requires_grad=True)
    bias = torch.ones(64, device=device)
    torch.nn.functional.linear(left, torch.ones(64, 64, device=device), bias).sum().backward()
