"""What accelerate keeps of a dataloader that was not read to its end.

A dataset that holds one tensor is prepared twice, one loader after the other; each is read for one batch and left, as a loop
with a limit of steps leaves it. Loader and dataset are dropped, ``free_memory()`` is called and garbage is collected. The second
time counts.

Prediction. Nothing needs a loader that its owner dropped: `left_bytes` is 0. A release whose state holds strong references to the
loaders in use keeps loader and dataset: 4 x ``rows`` x ``width``. ``read`` ``all`` reads to the end, which ends the use.

Source: accelerate state.py GradientState, data_loader.py DataLoaderStateMixin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("accelerate",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {"read": "one", "rows": 64, "width": 4096}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"rows": 32}, {"read": "all"})
CHOICES: Mapping[str, tuple[Any, ...]] = {"read": ("one", "all")}
METRIC = "left_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing."""
    return {"left_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return what a sampler's state may take."""
    return 16384


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {"training.framework": "accelerate", "run.repeated_initialize": True}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Prepare, read and drop, twice."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator()
    for name in ("first", "second"):
        before = recorder.live_bytes()
        with recorder.phase(name):
            data = torch.utils.data.TensorDataset(torch.zeros(parameters["rows"], parameters["width"]))
            loader = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=4))
            for _ in loader:
                if parameters["read"] == "one":
                    break
            del _, data, loader
            accelerator.free_memory()
        left = recorder.live_bytes() - before
    recorder.result("left_bytes", left)
