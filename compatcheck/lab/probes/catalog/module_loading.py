"""What loading kernels eagerly costs on the device, and that torch loads them lazily by default.

Three processes are started one after another and end before the next: with ``CUDA_MODULE_LOADING`` as ``LAZY``,
unset, and as ``loading`` says. Each makes a context and multiplies two matrices; the driver says how much more of the device is
in use, less what torch's allocator reserved. Measure on an idle device: other people's processes are counted too.

Prediction. Unset means lazy: ``default_over_lazy_bytes`` is 0. torch set the variable itself from 1.13 to 2.8, and
from CUDA 12.2 on lazy is CUDA's own default. What eager loading adds (``over_lazy_bytes``) depends on the
kernels in the build for this GPU; the one published figure is 379,584,512 bytes, of 2022.

Sources: torch/cuda/__init__.py of 2.8.0 (sets LAZY) and 2.9.1 (no longer),
https://github.com/pytorch/pytorch/pull/85692 (666,632,192 bytes against 287,047,680),
https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading. Derived by reading; `compatcheck probe
list` says whether it was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch",)
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
SHARES = ("driver_use",)
DEFAULTS: Mapping[str, Any] = {"loading": "EAGER", "edge": 1024, "dtype": "bfloat16"}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"loading": "LAZY"}, {"edge": 2048, "dtype": "float32"})
CHOICES: Mapping[str, tuple[Any, ...]] = {"loading": ("EAGER", "LAZY"), "dtype": ("bfloat16", "float16", "float32")}
METRIC = "default_over_lazy_bytes"
ALONE = True


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that the default is lazy, and so is what is asked to be."""
    predicted: dict[str, float] = {"default_over_lazy_bytes": 0}
    if parameters["loading"] == "LAZY":
        predicted["over_lazy_bytes"] = 0
    return predicted


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return 8 MiB: the driver maps whole pages of 2 MiB; eager loading costs hundreds."""
    return 8 * 2**20


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {"env.CUDA_MODULE_LOADING": parameters["loading"]}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Start a process for each way of loading."""
    import torch

    driver = recorder.load("driver_use")
    work = (
        f"a = torch.ones({parameters['edge']}, {parameters['edge']}, device='cuda', dtype=torch.{parameters['dtype']})\n"
        "b = a @ a\n"
    )
    outside = {}
    for name, value in (("lazy", "LAZY"), ("default", None), ("stated", parameters["loading"])):
        child, use = driver.start({"CUDA_MODULE_LOADING": value}, work)
        driver.stop(child)
        outside[name] = use.outside_bytes
        recorder.result(f"{name}_bytes", use.outside_bytes)
    recorder.result("default_over_lazy_bytes", outside["default"] - outside["lazy"])
    recorder.result("over_lazy_bytes", outside["stated"] - outside["lazy"])
    recorder.note(f"CUDA {torch.version.cuda}")
