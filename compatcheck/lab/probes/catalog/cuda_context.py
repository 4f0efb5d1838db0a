"""Device memory of a process before its first tensor: the CUDA context, and what the first kernels add.

The probe's own process holds a context already; it starts two further ones, one after the other, which stay alive,
and asks the driver (``cudaMemGetInfo``) how much more is in use after each. What their allocators reserved is taken
off. Processes of other people on the same device would be counted too: measure on an idle one.

Prediction. Nothing of a context is shared between processes: the second costs what the first did
(``second_less_first_bytes`` is 0). How large it is depends on GPU, driver and the kernels of the build, and is
measured, not predicted (``context_bytes``; ``first_kernels_bytes`` for a matrix product and a softmax on top).

Sources: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html (a context has its own address space and
modules); https://github.com/pytorch/pytorch/pull/85692 (287,047,680 bytes with lazy loading in 2022, the first
operation included), https://github.com/pytorch/pytorch/issues/175666 (about 70 MiB more with CUDA 13 on an L4).
Derived by reading; `compatcheck probe list` says whether it was ever run.
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
DEFAULTS: Mapping[str, Any] = {"edge": 1024, "dtype": "bfloat16"}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"edge": 2048, "dtype": "float32"})
CHOICES: Mapping[str, tuple[Any, ...]] = {"dtype": ("bfloat16", "float16", "float32")}
METRIC = "second_less_first_bytes"
ALONE = True


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that both processes cost the same."""
    return {"second_less_first_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return 8 MiB: the driver maps whole pages of 2 MiB, and processes need not end on the same one."""
    return 8 * 2**20


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Start two idle processes, and one that computes."""
    driver = recorder.load("driver_use")
    work = (
        f"a = torch.ones({parameters['edge']}, {parameters['edge']}, device='cuda', dtype=torch.{parameters['dtype']})\n"
        "b = torch.softmax(a @ a, -1)\n"
    )
    children = []
    try:
        uses = []
        for lines in ("", "", work):
            child, use = driver.start({}, lines)
            children.append(child)
            uses.append(use)
    finally:
        for child in children:
            driver.stop(child)
    first, second, working = uses
    recorder.result("context_bytes", first.outside_bytes)
    recorder.result("second_less_first_bytes", second.outside_bytes - first.outside_bytes)
    recorder.result("first_kernels_bytes", working.outside_bytes - first.outside_bytes)
