"""Main memory that a page-locked tensor takes: torch's host allocator rounds it up.

Tensors are made with ``pin_memory=True``, and the host allocator's own statistics say what it took from CUDA for
them.

Prediction. Each request is rounded up to a power of two: ``pinned_bytes`` is the sum of those powers,
``requested_bytes`` what was asked,
``rounding_bytes`` the difference for one. From 2.13 the allocator's setting ``pinned_max_round_threshold_mb``
(``threshold_mb`` here, 0 leaves it unset) ends that for larger requests, which then take what they ask for.

Sources: allocate() in ATen/core/CachingHostAllocator.h of 2.5.0, 2.12.1 (PowerOf2Ceil always) and 2.13.0 (up to
pinned_max_round_threshold); torch.cuda.host_memory_stats, from 2.7 on; report:
https://github.com/vllm-project/vllm/pull/48436. Derived by reading; `compatcheck probe list` says whether it was ever
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"bytes": 9 * 2**20, "count": 2, "threshold_mb": 0}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"bytes": 33 * 2**20 + 4096, "count": 1},
    {"bytes": 16 * 2**20},
    {"threshold_mb": 1},
)
METRIC = "pinned_bytes"


def environ(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """Return that the allocator starts as it is by default."""
    return {"PYTORCH_ALLOC_CONF": None, "PYTORCH_CUDA_ALLOC_CONF": None}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the sum of the powers of two."""
    size, threshold = parameters["bytes"], parameters["threshold_mb"] * 2**20
    rounded = size if threshold and size > threshold else 1 << (size - 1).bit_length()
    return {
        "pinned_bytes": rounded * parameters["count"],
        "requested_bytes": size * parameters["count"],
        "rounding_bytes": rounded - size,
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the allocator's statistics are exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names: offloaded float32 state of these bytes."""
    return {
        "model.trainable_parameters": parameters["bytes"] * parameters["count"] // 4,
        "hardware.world_size": parameters["count"],
        "training.sharding": "zero",
        "training.offload_optimizer": "cpu",
        "training.offload_optimizer_pin_memory": True,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Pin tensors and ask the host allocator."""
    import torch

    statistics = getattr(torch.cuda, "host_memory_stats", None)
    if statistics is None:
        recorder.unsupported("needs torch.cuda.host_memory_stats, torch >= 2.7")
    torch.cuda.init()
    if "allocated_bytes.current" not in statistics():
        recorder.unsupported("this torch's host allocator does not count what it took")
    if parameters["threshold_mb"]:
        release = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
        configure = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        if release < (2, 13) or configure is None:
            recorder.unsupported("needs the setting pinned_max_round_threshold_mb, torch >= 2.13")
        configure(f"pinned_max_round_threshold_mb:{parameters['threshold_mb']}")

    def allocated() -> int:
        return int(statistics()["allocated_bytes.current"])

    before = allocated()
    with recorder.phase("pin"):
        tensors = [
            torch.empty(parameters["bytes"], dtype=torch.uint8, pin_memory=True) for _ in range(parameters["count"])
        ]
    pinned, requested = allocated() - before, sum(tensor.numel() for tensor in tensors)
    recorder.result("pinned_bytes", pinned)
    recorder.result("requested_bytes", requested)
    recorder.result("rounding_bytes", (pinned - requested) / len(tensors))
