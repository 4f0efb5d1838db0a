"""Whether tensors of a memory pool with an allocator of its own come from that allocator while expandable segments are on.

Engines that sleep (vLLM, torch_memory_saver) give memory back by allocating through functions of their own in a
``torch.cuda.MemPool``. Here such functions are made with ctypes: they call ``cudaMalloc`` and ``cudaFree`` and count.
One tensor is made inside the pool.

Prediction. All of the tensor is asked from the pool's allocator: ``bypassed_bytes``, its bytes less those the pool's
function was asked for, is 0. Where expandable segments get in first, the function is never called, and the whole
tensor bypasses it. ``left_in_pool_bytes``, what the pool still has from its function after the tensor and the pool
are gone and the cache is emptied, is 0.

Sources: https://github.com/pytorch/pytorch/issues/147851 (the pool's functions are bypassed; torch before 2.10),
https://github.com/pytorch/pytorch/pull/169491 (fix), torch/cuda/memory.py of 2.13.0 (CUDAPluggableAllocator: two
function pointers). Derived by reading; `compatcheck probe list` says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"expandable_segments": True, "mebibytes": 40}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"mebibytes": 80}, {"expandable_segments": False})
METRIC = "bypassed_bytes"


def environ(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the allocator's setting under both of its names, which releases differ in."""
    setting = f"expandable_segments:{parameters['expandable_segments']}"
    return {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that nothing bypasses the pool, and nothing stays in it."""
    return {"bypassed_bytes": 0, "left_in_pool_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the tensor is a multiple of what the allocator rounds to."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "allocator.expandable_segments": parameters["expandable_segments"],
        "rollout.sleep_mode": True,
        "rollout.colocated": True,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Make a tensor inside the pool."""
    import ctypes

    import torch

    make, custom = getattr(torch.cuda, "MemPool", None), getattr(torch._C, "_cuda_customAllocator", None)
    if make is None or custom is None or not hasattr(torch.cuda, "use_mem_pool"):
        recorder.unsupported("needs torch.cuda.MemPool and use_mem_pool, torch >= 2.5")
    runtime = _runtime()
    if runtime is None:
        recorder.unsupported("the CUDA runtime's library is not loaded by itself in this build of torch")
    runtime.cudaMalloc.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)
    runtime.cudaFree.argtypes = (ctypes.c_void_p,)
    asked: list[int] = []
    alive: dict[int, int] = {}

    def allocate(size: int, device: int, stream: int | None) -> int | None:
        pointer = ctypes.c_void_p()
        if runtime.cudaMalloc(ctypes.byref(pointer), size):
            return None
        asked.append(size)
        alive[pointer.value or 0] = size
        return pointer.value

    def free(pointer: int | None, size: int, device: int, stream: int | None) -> None:
        alive.pop(pointer or 0, None)
        runtime.cudaFree(pointer)

    # void* (ssize_t size, int device, cudaStream_t) and void (void*, ssize_t size, int device, cudaStream_t)
    allocate_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    free_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    functions = allocate_type(allocate), free_type(free)
    allocator = custom(*(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
    try:
        pool = make(allocator)
    except TypeError:  # it took the owner of the allocator, not the allocator, for a while
        recorder.unsupported("this torch's MemPool takes no allocator")
    size = parameters["mebibytes"] * 2**20
    with recorder.phase("pool"), torch.cuda.use_mem_pool(pool):
        tensor = torch.empty(size, dtype=torch.uint8, device=recorder.device)
    recorder.result("bypassed_bytes", size - min(size, sum(asked)))
    recorder.result("calls_of_the_pool", len(asked))
    del tensor
    del pool
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    recorder.result("left_in_pool_bytes", sum(alive.values()))


def _runtime() -> Any:
    """Return the CUDA runtime that torch has loaded, None where it is linked in statically."""
    import ctypes

    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = {line.split()[-1] for line in file if "libcudart" in line}
    return ctypes.CDLL(min(paths)) if paths else None
