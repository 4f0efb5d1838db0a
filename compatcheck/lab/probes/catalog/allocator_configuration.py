"""Whether the CUDA allocator honours its configuration variable, and what that is worth on a pattern that fragments.

``variable`` is set to ``setting`` before torch starts, and the other name of the variable is taken away. Then
``count`` tensors of growing size are made, one at a time, each freed before the next: 40 MiB, 60 MiB, 80 MiB, ...

Prediction. Without expandable segments a cached block is never joined with another, so each larger tensor needs a
segment of its own: reserved is the sum of all sizes. With them one segment grows by pages of 20 MiB, and reserved is
the largest size. All sizes are multiples of both granularities (2 MiB and 20 MiB), so that both are exact.
``setting_honoured``, read from the allocator's own snapshot where this torch shows its settings, is 1.

Sources: allocation rounding in https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/AllocatorConfig.h and
ExpandableSegment in c10/cuda/CUDACachingAllocator.cpp (20 MiB pages for large blocks); which name is read:
c10/cuda/CUDAAllocatorConfig.h of 2.9.1 (PYTORCH_CUDA_ALLOC_CONF alone) and 2.10.0 (both); report:
https://github.com/pytorch/pytorch/issues/183387. Derived by reading; `compatcheck probe list` says whether it was
ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "variable": "PYTORCH_CUDA_ALLOC_CONF",
    "setting": "expandable_segments:True",
    "count": 6,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"variable": "PYTORCH_ALLOC_CONF"},
    {"count": 9},
    {"setting": "expandable_segments:False"},
    {"setting": "expandable_segments:False", "count": 9},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"variable": ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
METRIC = "reserved_bytes"
_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_MIB = 2**20


def environ(parameters: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the variable, and the other one taken away."""
    return {name: parameters["setting"] if name == parameters["variable"] else None for name in _NAMES}


def _expandable(parameters: Mapping[str, Any]) -> bool:
    return "expandable_segments:true" in parameters["setting"].lower()


def _sizes(parameters: Mapping[str, Any]) -> list[int]:
    return [(40 + 20 * index) * _MIB for index in range(parameters["count"])]


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the largest tensor with expandable segments, else the sum of all."""
    sizes = _sizes(parameters)
    return {"reserved_bytes": max(sizes) if _expandable(parameters) else sum(sizes), "setting_honoured": 1}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all sizes are multiples of what the allocator rounds to."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        f"env.{parameters['variable']}": parameters["setting"],
        "allocator.expandable_segments": _expandable(parameters),
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Allocate and free tensors of growing size."""
    import torch

    backend = getattr(torch.cuda, "get_allocator_backend", None)
    if backend is not None and backend() != "native":
        recorder.unsupported(f"the allocator in use is {backend()}, not torch's own")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    with recorder.phase("growing"):
        for size in _sizes(parameters):
            tensor = torch.empty(size, dtype=torch.uint8, device=recorder.device)
            del tensor
    recorder.result("reserved_bytes", torch.cuda.memory_reserved() - before)
    snapshot = torch.cuda.memory._snapshot()
    settings = snapshot.get("allocator_settings") if isinstance(snapshot, dict) else None
    if settings is None:
        recorder.note("this torch does not show the allocator's settings")
        return
    shown = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
    recorder.note(f"the allocator's settings: {shown}")
    if "expandable_segments" in settings:
        honoured = str(settings["expandable_segments"]).lower() in {"true", "1"}
        recorder.result("setting_honoured", int(honoured == _expandable(parameters)))
