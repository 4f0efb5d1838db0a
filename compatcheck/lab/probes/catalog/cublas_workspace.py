"""Bytes that the first matrix product leaves in torch's allocator: the cuBLAS workspace.

A process of its own multiplies two matrices, and then runs the product's backward pass, whose thread has a cuBLAS
handle of its own. ``config`` is CUBLAS_WORKSPACE_CONFIG; empty leaves it unset.

Prediction. torch gives every pair of handle and stream a workspace from its caching allocator, which stays until the
process ends: for ``:SIZE:COUNT`` pairs, SIZE in KiB, the sum of SIZE x 1024 x COUNT. The default is ``:4096:2:16:8``,
2 x 4 MiB + 8 x 16 KiB = 8,519,680 bytes, on most GPUs and 32 MiB on compute capability 9; on 10 and 12 releases
differ (32 MiB from https://github.com/pytorch/pytorch/pull/175344 on). ``unexplained_bytes`` is what the forward pass
left less that size, 0; ``autograd_thread_bytes`` as much again.

Sources: parseChosenWorkspaceSize() and getCurrentCUDABlasHandle() in aten/src/ATen/cuda/CublasHandlePool.cpp, as of
https://github.com/pytorch/pytorch/pull/89027; report: https://github.com/pytorch/pytorch/issues/95668. Releases of
2026 moved the map of workspaces to threads (https://github.com/pytorch/pytorch/pull/180283). Derived by reading;
`compatcheck probe list` says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch", "nvidia-cublas-cu12", "nvidia-cublas")
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"config": "", "dtype": "bfloat16", "edge": 512}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"config": ":4096:2:16:8"},
    {"config": ":4096:8", "dtype": "float32"},
    {"config": ":16:8", "edge": 1024},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"dtype": ("bfloat16", "float16", "float32")}
METRIC = "unexplained_bytes"
_BLOCK = 512


def environ(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the variable; expandable segments would change nothing of this, and are off."""
    return {
        "CUBLAS_WORKSPACE_CONFIG": parameters["config"] or None,
        "PYTORCH_CUDA_ALLOC_CONF": None,
        "PYTORCH_ALLOC_CONF": None,
    }


def _configured(config: str) -> int:
    numbers = [int(part) for part in config.split(":") if part]
    return sum(size * 1024 * count for size, count in zip(numbers[::2], numbers[1::2]))  # noqa: B905 (strict= came with Python 3.10)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that the size is explained, and the size where it is configured."""
    predicted: dict[str, float] = {"unexplained_bytes": 0}
    if parameters["config"]:
        size = _configured(parameters["config"])
        predicted.update(workspace_bytes=size, autograd_thread_bytes=size)
    return predicted


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all sizes are multiples of the allocator's 512 bytes."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {"env.CUBLAS_WORKSPACE_CONFIG": parameters["config"]} if parameters["config"] else {}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Multiply, and go backward."""
    import torch

    if getattr(torch.version, "hip", None):
        recorder.unsupported("cuBLAS is not what ROCm multiplies with")
    edge, dtype = parameters["edge"], getattr(torch, parameters["dtype"])
    left, right = (
        torch.ones(edge, edge, device=recorder.device, dtype=dtype, requires_grad=requires)
        for requires in (True, False)
    )
    element = torch.empty((), dtype=dtype).element_size()
    matrix = -(-edge * edge * element // _BLOCK) * _BLOCK
    upstream = torch.ones_like(right)
    with recorder.phase("forward"):
        product, _, left_over = recorder.measure(lambda: left @ right)
    forward = left_over - matrix
    with recorder.phase("backward"):
        # The gradient of the left operand is one more product, in autograd's thread.
        _, _, grown = recorder.measure(lambda: torch.autograd.backward(product, upstream))
    recorder.result("workspace_bytes", forward)
    recorder.result("autograd_thread_bytes", grown - matrix)
    capability = torch.cuda.get_device_capability()[0]
    default = 8_519_680
    if parameters["config"]:
        expected = [_configured(parameters["config"])]
    elif capability == 9:
        expected = [32 * 2**20]
    else:
        expected = [default, 32 * 2**20] if capability > 9 else [default]
    nearest = min(expected, key=lambda size: abs(forward - size))
    recorder.result("unexplained_bytes", abs(forward - nearest))
    recorder.note(f"compute capability {capability}")
