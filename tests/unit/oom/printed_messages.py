"""Print the messages of every era from their numbers, with the format each program's own source has."""

from __future__ import annotations

from typing import Any

from compatcheck.core.units import GIB, KIB, MIB


def format_size(size: int) -> str:
    """Print a size as torch's CUDA allocator does.

    >>> format_size(1024 * 1024 * 1024)
    '1024.00 MiB'
    """
    if size <= KIB:
        return f"{size} bytes"
    unit, name = (KIB, "KiB") if size <= MIB else (MIB, "MiB") if size <= GIB else (GIB, "GiB")
    return f"{size / unit:.2f} {name}"


DOCUMENTATION = "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
SINCE_2_13 = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
ERAS = ("1.3", "1.4", "1.11", "2.1", "2.2", "2.3", "2.10", "2.13", "npu")
_OLD_HINT = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    "  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)


def print_message(era: str, sizes: dict[str, Any], device: int = 0, allocator: str = "CUDA") -> str:
    """Print one message of torch's caching allocator.

    Args:
        era: the release that first prints this form, or ``npu`` for torch_npu's.
        sizes: printed sizes by the names of `Message`; ``others`` is a list of (number, size).
        device: index of the device.
        allocator: what the fork calls the device.
    """
    head = f"{allocator} out of memory. Tried to allocate {sizes['asked']}"
    if "total" not in sizes:
        return head
    if era in {"1.3", "1.4", "1.11", "npu"}:
        unit = "NPU" if era == "npu" else "GPU"
        active = f"{sizes['allocated']} current active; " if era == "npu" else ""
        allowed = f"{sizes['allowed']} allowed; " if "allowed" in sizes else ""
        kept = "cached" if era == "1.3" else "reserved in total by PyTorch"
        last = sizes.get("unallocated" if era == "1.3" else "reserved")
        if last is None:
            return f"{head} ({unit} {device}; {sizes['total']} total capacity; {sizes['allocated']} already allocated;"
        text = (
            f"{head} ({unit} {device}; {sizes['total']} total capacity; {sizes['allocated']} already allocated; {active}"
            f"{sizes['free']} free; {allowed}{last} {kept})"
        )
        return text + (_OLD_HINT if era in {"1.11", "npu"} else "")
    index = "\x00" if era == "2.3" else str(device)
    text = f"{head}. GPU {index} has a total capac{'' if era == '2.1' else 'i'}ty of {sizes['total']} of which {sizes['free']} is free. "
    text += "".join(f"Process {number} has {size} memory in use. " for number, size in sizes.get("others", ()))
    if "process" in sizes:
        text += f"Including non-PyTorch memory, this process has {sizes['process']} memory in use. "
    if "allowed" in sizes:
        text += f"{sizes['allowed']} allowed; "
    if "allocated" not in sizes:
        return text
    pools = (
        f"with {sizes['private_pools']} allocated in private pools (e.g., CUDA Graphs), "
        if "private_pools" in sizes
        else ""
    )
    text += (
        f"Of the allocated memory {sizes['allocated']} is allocated by PyTorch, {pools}and {sizes['unallocated']} "
        "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    )
    if era == "2.1":
        return (
            text
            + "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
        )
    variable = "PYTORCH_ALLOC_CONF" if era == "2.10" else "PYTORCH_CUDA_ALLOC_CONF"
    place = SINCE_2_13 if era == "2.13" else DOCUMENTATION
    return (
        text
        + f"{variable}=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  ({place})"
    )


def print_other(form: str, values: dict[str, Any]) -> str:
    """Print a message of another program."""
    return FORMATS[form].format(**values)


FORMATS = {
    "cuda-malloc-async": (
        "Allocation on device {device} would exceed allowed memory. (out of memory)\nCurrently allocated     : {allocated}\n"
        "Requested               : {asked}\nDevice limit            : {total}\nFree (according to CUDA): {free}\n"
        "PyTorch limit (set by user-supplied memory fraction)\n                        : {total}"
    ),
    "mps": (
        "MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max allowed: {total}). Tried to allocate "
        "{asked} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations"
    ),
    "torch-warning": (
        "memory allocation failed with OOM on device {device} while trying to allocate {asked} (free: {free}, total: {total})."
    ),
    "one-exabyte": "CUDA out of memory. Tried to allocate more than 1EB memory.",
    "cpu": "[enforce fail at alloc_cpu.cpp:{line}] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate {asked}. Error code 12 (Cannot allocate memory)",
    "numpy": "numpy.core._exceptions._ArrayMemoryError: Unable to allocate {asked} for an array with shape {shape} and data type {dtype}",
    "vllm-kv-cache": (
        "ValueError: To serve at least one request with the models's max seq len ({length}), ({asked} KV cache is needed, which is larger "
        "than the available KV cache memory ({free}). Based on the available memory, the estimated maximum model length is {fits}. "
        "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    ),
    "vllm-utilization": (
        "ValueError: Free memory on device ({free}/{total} GiB) on startup is less than desired GPU memory utilization ({share}, {demanded} "
        "GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    ),
    "vllm-sampler": "RuntimeError: CUDA out of memory occurred when warming up sampler with {requests} dummy requests. Please try lowering `max_num_seqs`",
    "vllm-cumem": "CUDA Error: out of memory at /build/csrc/cumem_allocator.cpp:{line}",
    "nccl": "node:1:2 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
    "nccl-calloc": "node:1:2 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc {asked}",
    "bitsandbytes": "Error out of memory at line {line} in file /src/csrc/pythonInterface.c",
    "cublas": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "triton-shared-memory": "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: {required}, Hardware limit: {limit}. Reducing block sizes or `num_stages` may help.",
    "cuda-error": "RuntimeError: CUDA error: out of memory",
    "ray-memory-monitor": (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: ab) "
        "where the task (actor ID: cd, name=f, pid=7, memory used=1.00GB) was running was {free} / {total} ({share}), which exceeds the "
        "memory usage threshold of 0.95. Ray killed this worker (ID: ef) because it was the most recently scheduled task"
    ),
    "nvml-assert": 'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":{line}, please report a bug to PyTorch.',
    "nvml-handle": 'RuntimeError: handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":{line}, please report a bug to PyTorch.',
    "mps-buffer": "RuntimeError: Invalid buffer size: {asked}",
    "ggml": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {asked} on device {device}: cudaMalloc failed: out of memory",
    "cuda-malloc-async-short": "torch.OutOfMemoryError: Allocation on device",
    "expandable-segments": "expandable_segments: memory mapping failed with OOM on device {device} while trying to map {mapped} bytes (free: {free}, total: {total})",
    "torch-memory-saver": "[torch_memory_saver.cpp] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY (may not be an issue e.g. torch allocator will free cache and retry)",
    "torch-memory-saver-old": "[torch_memory_saver.cpp] CUresult error  result=2 file=csrc/torch_memory_saver.cpp func=cu_mem_create line=103",
    "neuron": "RuntimeError: NRT allocation failed for size {asked}",
    "neuron-status": 'RuntimeError: nrt_tensor_allocate status=4 message="Allocation Failure"',
    "ggml-reserve": "ggml_gallocr_reserve_n: failed to allocate CUDA{device} buffer of size {asked}",
    "cuda-driver": "failed to create a context: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "ray-worker-died": "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called.",
    "ray-worker-died-new": "The actor is dead. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called",
    "killed-alone": "process 3 failed with exitcode -9",
    "killed": "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: exitcode  : -9 (pid: 3)",
}  # fmt: skip
