"""The messages of other programs than torch's caching allocator, as data: what marks one, and what it says.

Each pattern is written from the program's own format string, named beside it; texts have single blanks (`text.Stream`).
"""

from __future__ import annotations

from typing import NamedTuple

from compatcheck.oom.sizes import SIZE


class Form(NamedTuple):
    """One message of one program."""

    name: str
    allocator: str
    memory: str
    """``device``, ``host``, ``shm``, ``none`` for what only looks like a shortage of device memory, ``unknown`` for what may be one."""
    needle: str
    """Lower-case texts between bars, one of which stands in every match: so rare in logs that a search for them is the first sieve."""
    pattern: str
    """Case-insensitive; groups named like fields of `Message` are sizes, those that start with ``d_`` are details."""
    rounding: str = "exact"
    releases: str | None = None


FORMS = (
    Form(
        # c10/cuda/CUDAMallocAsyncAllocator.cpp, mallocAsync
        "cuda-malloc-async", "CUDA (cudaMallocAsync)", "device", "would exceed allowed memory",
        rf"Allocation on device (?P<device>\d*) ?would exceed allowed memory\. \(out of memory\)(?: Currently allocated ?: (?P<allocated>{SIZE}))?"
        rf"(?: Requested ?: (?P<asked>{SIZE}))?(?: Device limit ?: (?P<total>{SIZE}))?(?: Free \(according to CUDA\) ?: (?P<free>{SIZE}))?",
    ),
    Form(
        "cuda-malloc-async", "CUDA (cudaMallocAsync)", "device", "allocation on device",
        r"OutOfMemoryError: Allocation on device(?! ?\d* ?would exceed)(?: (?P<device>\d+))?",
    ),
    Form(
        # c10/cuda/CUDACachingAllocator.cpp, ExpandableSegment::map
        "expandable-segments", "CUDA, expandable segments", "device", "with oom",
        r"memory mapping failed with OOM(?: on device (?P<device>\d+))?(?: while trying to map (?P<d_mapped_bytes>\d+) bytes)?",
    ),
    Form(
        # csrc/utils.h of torch_memory_saver, cu_mem_create; before 0.0.9 "CUresult error"
        "torch-memory-saver", "torch_memory_saver (SGLang in reinforcement learning)", "device", "cu_mem_create|_out_of_memory|out of memory",
        r"\[torch_memory_saver\.cpp\] (?:cuMemCreate CUDA_ERROR_OUT_OF_MEMORY|CUresult error:? (?:result=)?2 [^\[]{0,80}cu_mem_create"
        r"|cudaError error: 2 \(out of memory\))",
    ),
    Form(
        # libnrt of AWS Neuron
        "neuron", "AWS Neuron", "device", "allocation fail",
        r"(?:NRT allocation failed for size:? ?(?P<asked>\d+)|nrt_\w+ status=4 message=\W{0,3}Allocation Failure)",
    ),
    Form(
        # aten/src/ATen/mps/MPSAllocator.mm, MPSHeapAllocatorImpl::malloc
        "mps", "MPS", "device", "tried to allocate",
        rf"MPS backend out of memory \(MPS allocated: (?P<allocated>{SIZE}), other allocations: (?P<d_other_allocations>{SIZE}), max allowed: (?P<total>{SIZE})\)\. "
        rf"Tried to allocate (?P<asked>{SIZE})", "unknown",
    ),
    Form(
        # c10/cuda/CUDACachingAllocator.cpp, alloc_block: a warning before the exception
        "torch-warning", "CUDA", "device", "with oom",
        r"memory allocation failed with OOM on device (?P<device>\d+) while trying to allocate (?P<asked>\d+ bytes) \(free: (?P<d_free_bytes>\d+), total: (?P<d_total_bytes>\d+)\)",
        "segment", "torch 2.14 or later",
    ),
    Form(
        # c10/cuda/CUDACachingAllocator.cpp, NativeCachingAllocator::allocate: one_exa_bytes
        "one-exabyte", "CUDA", "none", "tried to allocate", r"Tried to allocate more than 1EB memory",
    ),
    Form(
        # c10/core/impl/alloc_cpu.cpp; c10/core/CPUAllocator.cpp before 1.13
        "cpu", "host memory", "host", "tried to allocate",
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (?P<asked>\d+ bytes|\d+GB)",
    ),
    Form(
        # numpy/core/src/multiarray/alloc.c and numpy/core/_exceptions.py, _ArrayMemoryError
        "numpy", "host memory", "host", "array with shape",
        rf"Unable to allocate (?P<asked>{SIZE}) for an array with shape (?P<d_shape>\([\d, ]*\)) and data type (?P<d_dtype>\S+)",
    ),
    Form(
        # vllm/v1/core/kv_cache_utils.py, check_enough_kv_cache_memory; unit GiB, earlier GB
        "vllm-kv-cache", "vLLM's KV cache", "device", "least one request",
        rf"To serve at least one request with the models?(?:'s)? max seq len \((?P<d_max_seq_len>\d+)\),? \(?(?P<asked>{SIZE}) KV cache is needed, which is larger than the "
        rf"available KV cache memory \((?P<free>{SIZE})\)(?:\. Based on the available memory,? ?(?:Based on the available memory, )?the estimated maximum model length is (?P<d_estimated_max_model_len>\d+))?",
    ),
    Form(
        # raise_if_cache_size_invalid in vllm/worker/worker.py, before V1
        "vllm-kv-blocks", "vLLM's KV cache", "device", "stored in kv cache",
        r"The model's max seq len \((?P<d_max_seq_len>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((?P<d_tokens>\d+)\)",
    ),
    Form(
        "vllm-no-blocks", "vLLM's KV cache", "device", "available memory for the cache",
        r"No available memory for the cache blocks",
    ),
    Form(
        # vllm/v1/worker/gpu_worker.py, init_device
        "vllm-utilization", "vLLM's share of the device", "device", "than desired gpu",
        r"Free memory on device(?: \S+)? \((?P<d_free_gib>[\d.]+)/(?P<d_total_gib>[\d.]+) GiB\) on startup is less than desired GPU memory utilization "
        r"\((?P<d_utilization>[\d.]+), (?P<d_demanded_gib>[\d.]+) GiB\)",
    ),
    Form(
        # vllm/v1/worker/gpu_model_runner.py, _dummy_sampler_run
        "vllm-sampler", "vLLM's sampler warm-up", "device", "occurred when warming",
        r"CUDA out of memory occurred when warming up (?:sampler|pooler(?: \([^)]*\))?) with (?P<d_requests>\d+) dummy requests",
    ),
    Form(
        # csrc/cumem_allocator.cpp of vLLM, CUDA_CHECK
        "vllm-cumem", "vLLM's sleep-mode allocator", "device", "cumem_allocator.cpp",
        r"CUDA Error: out of memory at \S*cumem_allocator\.cpp:(?P<d_line>\d+)",
    ),
    Form(
        # python/sglang/srt/model_executor, init_memory_pool
        "sglang-kv-cache", "SGLang's KV cache", "device", "--mem-fraction-static",
        r"Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static",
    ),
    Form(
        # src/include/alloc.h and src/include/checks.h of NCCL
        "nccl", "NCCL", "device", "failed to cuda|out of memory",
        r"(?:NCCL WARN|ncclUnhandledCudaError|Last error:)(?:(?!Traceback|NCCL WARN).){0,200}?(?:Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:host )?(?:c?alloc|malloc)(?: async)? (?P<asked>\d+ bytes))",
    ),
    Form(
        # csrc/pythonInterface.c and csrc/ops.cu of bitsandbytes
        "bitsandbytes", "bitsandbytes", "device", "out of memory",
        r"Error out of memory at line (?P<d_line>\d+) in file (?P<d_file>\S+)",
    ),
    Form(
        # aten/src/ATen/cuda/CUDABlas.cpp, CUDAContext handle pools
        "cublas", "a CUDA library (cuBLAS, cuDNN, cuSOLVER)", "device", "status_alloc_failed",
        r"CU(?P<d_library>BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED",
    ),
    Form(
        "triton-shared-memory", "shared memory of a kernel", "none", "out of resource",
        r"out of resource: (?P<d_resource>shared memory|threads|registers|tensor memory), Required: (?P<d_required>\d+), Hardware limit: (?P<d_limit>\d+)",
    ),
    Form(
        # reportProcessMemoryInfo in c10/cuda/CUDACachingAllocator.cpp: fails while the message about exhausted memory is written
        "nvml-assert", "CUDA", "device", "internal assert failed",
        r"(?:NVML_SUCCESS == \S.{0,80}?|handle_\d) INTERNAL ASSERT FAILED",
    ),
    Form(
        # aten/src/ATen/mps/MPSAllocator.mm: larger than one Metal buffer may be
        "mps-buffer", "MPS", "device", "invalid buffer size", rf"Invalid buffer size: (?P<asked>{SIZE})", "unknown",
    ),
    Form(
        # ggml/src/ggml-cuda/ggml-cuda.cu, ggml_backend_cuda_buffer_type_alloc_buffer
        "ggml", "CUDA, through ggml (llama.cpp, ollama)", "device", "cudamalloc failed",
        rf"allocating (?P<asked>{SIZE}) on device (?P<device>\d+): cudaMalloc failed: out of memory"
        r"(?: \w+: failed to allocate \w+ buffer of size (?P<d_bytes>\d+))?",
    ),
    Form(
        # ggml/src/ggml-alloc.c, ggml_gallocr_reserve_n and alloc_tensor_range
        "ggml", "a device, through ggml (llama.cpp, ollama)", "device", "failed to allocate",
        r"failed to allocate (?:CUDA|ROCm|Vulkan|SYCL|Metal|CANN|MUSA)(?P<device>\d*) buffer of size (?P<asked>\d+)",
    ),
    Form("triton-cuda", "CUDA, through Triton", "device", "out of memory", r"Triton Error \[CUDA\]: out of memory"),
    Form(
        # c10/cuda/CUDAException.cpp; AcceleratorError since 2.8. Comes from a call outside the caching allocator.
        "cuda-error", "CUDA, outside the caching allocator", "device", "out of memory",
        r"(?P<d_kind>(?:torch\.)?AcceleratorError|CUDA driver error|CUDA error|CUDA runtime error|cuda runtime error \(2\)|HIP error)\s?:(?: CUDA error:)? out of memory",
    ),
    Form("cuda-error", "the driver, outside the caching allocator", "device", "_out_of_memory", r"(?P<d_kind>(?:CUDA|HIP)_ERROR_OUT_OF_MEMORY)"),
    Form(
        # tensorflow/compiler/xla, BFCAllocator
        "xla", "XLA", "device", "resource_exhausted",
        r"RESOURCE_EXHAUSTED: (?:XLA:TPU compile permanent error\. )?(?:Ran o|O)ut of memory(?: while trying to allocate (?P<asked>\d+ bytes))?",
    ),
    Form(
        # python/ray/_private/worker and src/ray/raylet/node_manager.cc
        "ray-memory-monitor", "host memory, watched by Ray", "host", "low on memory",
        rf"killed due to the node running low on memory\. ?(?:Memory on the node (?:(?!was running was).){{0,300}}was running was (?P<free>{SIZE}) / (?P<total>{SIZE}) \((?P<d_share>[\d.]+)\), which exceeds the memory usage threshold of (?P<d_threshold>[\d.]+))?",
    ),
    Form(
        "ray-workers-killed", "host memory, watched by Ray", "host", "pressure (oom)",
        r"(?P<d_workers>\d+) Workers \(tasks / actors\) killed due to memory pressure \(OOM\)",
    ),
    Form(
        # src/ray/raylet/node_manager.cc: what it always writes of a worker that went without a word
        "ray-worker-died", "Ray", "unknown", "oom killer",
        r"\(1\) [Tt]he process (?:is killed by SIGKILL|was killed) by (?:the )?OOM killer due to high memory usage",
    ),
    Form(
        # torch/multiprocessing/reductions.py, c10 MapAllocator
        "shm-mmap", "shared memory of the host", "shm", "unable to mmap", r"unable to mmap (?P<asked>\d+ bytes) from file",
    ),
    Form(
        # torch/utils/data/_utils/signal_handling.py
        "shm-dataloader", "shared memory of the host", "shm", "dataloader worker",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal: Bus error|exited unexpectedly)",
    ),
    Form(
        # torch/distributed/elastic, deepspeed/launcher/launch.py, kubernetes, the shell
        "killed", "host memory, by the kernel", "host", "sigkill| -9|:-9|code-9| 137",
        r"(?:exit ?code ?:? ?-9\b|exits with return code = -9\b|died with <Signals\.SIGKILL: 9>|Signal 9 \(SIGKILL\)|exit(?:ed with)?(?: code| status)?:? 137\b|return code:? -9\b)",
    ),
    Form("oom-killed", "host memory, by the kernel", "host", "oomkilled", r"\bOOMKilled\b"),
    Form(
        "kernel-oom", "host memory, by the kernel", "host", "out of memory", r"Out of memory: Kill(?:ed)? process (?P<d_pid>\d+)",
    ),
)  # fmt: skip
TORCH_NEEDLE = "tried to allocate"
"""What stands in every message of torch's caching allocator."""
