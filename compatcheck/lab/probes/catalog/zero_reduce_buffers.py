"""Bytes of DeepSpeed's gradient reduction buffers, by ZeRO stage, dtype and `overlap_comm`.

Two engines around equal models differ in ``reduce_bucket_size`` alone: one element per parameter of the model, and twice
that. Both hold all gradients in one bucket, so nothing else differs, and the difference of their peaks in backward is what
the larger bucket costs for as many elements as the model has parameters.

Prediction. Stages 1 and 2 make one buffer of ``reduce_bucket_size`` elements in the gradients' dtype when backward begins,
and a second with ``overlap_comm``; stage 3 makes one, whatever ``overlap_comm`` says: ``buffer_bytes`` = 2 x elements x (1,
or 2 at stage 1 and 2 with overlap). At stage 3 the buffer exists for good, below it is given back after backward:
``resident_buffer_bytes`` = 2 x elements at stage 3 and 0 else. Source: deepspeed/runtime/zero/stage_1_and_2.py and
stage3.py. With ``larger`` false both buckets are equal, and the difference is nothing: a control. The 4.5 times of which
documentation speaks ended with 0.3 (https://github.com/deepspeedai/DeepSpeed/pull/1042).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 1,
    "zero_stage": 2,
    "overlap_comm": False,
    "layers": 4,
    "hidden_size": 256,
    "larger": True,
}
SIZES = (
    {"zero_stage": 2},
    {"zero_stage": 2, "overlap_comm": True, "layers": 6, "hidden_size": 128},
    {"zero_stage": 1, "overlap_comm": True},
    {"zero_stage": 3, "overlap_comm": True},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"zero_stage": (1, 2, 3)}
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "buffer_bytes"


def _elements(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of the buffers for one element per parameter, in backward and for good."""
    one = 2 * _elements(parameters) if parameters["larger"] else 0
    third = parameters["zero_stage"] == 3
    return {
        "buffer_bytes": 2 * one if parameters["overlap_comm"] and not third else one,
        "resident_buffer_bytes": one if third else 0,
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    elements = _elements(parameters)
    return {
        "model.parameters": elements,
        "model.trainable_parameters": elements,
        "training.zero_stage": parameters["zero_stage"],
        "training.param_dtype": "bfloat16",
        "training.contiguous_gradients": True,
        "training.overlap_comm": parameters["overlap_comm"],
        "training.reduce_bucket_size": elements,
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train an engine with each bucket and take the differences."""
    import functools

    import torch
    from torch import nn

    deepspeed = recorder.deepspeed()
    hidden = parameters["hidden_size"]
    # The first product of a shape makes oneDNN keep scratch memory for good.
    warm = nn.Linear(hidden, hidden, bias=False).bfloat16()
    warm(torch.randn(2, hidden, dtype=torch.bfloat16, requires_grad=True)).float().sum().backward()
    del warm
    kept, peaks, residents = [], [], []
    for buckets in (1, 2 if parameters["larger"] else 1):
        before = recorder.live_bytes()
        layers = (nn.Linear(hidden, hidden, bias=False) for _ in range(parameters["layers"]))
        model = nn.Sequential(*layers).bfloat16()
        configuration = {
            "train_micro_batch_size_per_gpu": 2,
            "bf16": {"enabled": True},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {
                "stage": parameters["zero_stage"],
                "stage3_param_persistence_threshold": 0,
                "stage3_max_live_parameters": 0,
                "stage3_max_reuse_distance": 0,
                "stage3_prefetch_bucket_size": 0,
                "contiguous_gradients": True,
                "overlap_comm": parameters["overlap_comm"],
                "reduce_bucket_size": buckets * _elements(parameters),
            },
        }
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
        for _ in range(2):
            inputs = torch.randn(2, hidden, dtype=torch.bfloat16, requires_grad=True)
            loss = engine(inputs).float().sum()
            start = recorder.live_bytes()
            _, peak, _ = recorder.measure(functools.partial(engine.backward, loss))
            del loss, inputs
            engine.step()
        peaks.append(start + peak - before)
        residents.append(recorder.live_bytes() - before)
        kept.append(engine)
    recorder.result("buffer_bytes", peaks[1] - peaks[0])
    recorder.result("resident_buffer_bytes", residents[1] - residents[0])
    recorder.result("buffers_per_element", (peaks[1] - peaks[0]) / _elements(parameters) / 2)
