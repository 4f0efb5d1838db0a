"""Bytes that the experts of a mixture keep for backward, for each implementation.

A tiny model of ``model_type`` runs forward at two widths of its experts, ``intermediate`` and twice that, and at two hidden
sizes. The difference over the width, ``expert_bytes``, holds what is as wide as an expert; the difference of the differences,
``gathered_weight_bytes``, is what grows with width x hidden, a copy of weights for each token.

Prediction. Each token that an expert works on keeps gate, up, activated gate and their product in bfloat16, 2 bytes each: 8 x
batch x length x experts_per_token x intermediate x layers, and as much again for a shared expert of the same width. gpt_oss
clamps gate and up, which keeps both as they were (4) beside the clamped gate, its sigmoid, their product, up + 1 and the
result: 14 bytes. An implementation that gathers the weights of three matrices for each token and expert keeps 6 x batch x
length x experts_per_token x hidden x intermediate x layers on top. ``implementation`` ``default`` is the release's own; the
others exist from 5.0 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "model_type": "mixtral",
    "implementation": "default",
    "layers": 2,
    "batch": 2,
    "length": 32,
    "hidden": 64,
    "intermediate": 96,
    "experts": 4,
    "experts_per_token": 2,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"length": 48, "intermediate": 128},
    {"model_type": "qwen2_moe", "experts_per_token": 1},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"implementation": ("default", "eager", "batched_mm", "grouped_mm")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,)}
METRIC = "expert_bytes"

_SHARED = {"qwen2_moe": 1, "deepseek_v3": 1, "glm4_moe": 1, "ernie4_5_moe": 1, "dots1": 1}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return four 16-bit values for each token, expert of its choice and unit of an expert's width."""
    experts = parameters["experts_per_token"] + _SHARED.get(parameters["model_type"], 0)
    tokens = parameters["batch"] * parameters["length"]
    each = 14 if parameters["model_type"] == "gpt_oss" else 8
    return {
        "expert_bytes": each * tokens * experts * parameters["intermediate"] * parameters["layers"],
        "gathered_weight_bytes": 0,
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    chosen = parameters["implementation"]
    return {
        **({} if chosen == "default" else {"model.experts_implementation": chosen}),
        "model.model_type": parameters["model_type"],
        "model.num_hidden_layers": parameters["layers"],
        "model.hidden_size": parameters["hidden"],
        "model.moe_intermediate_size": parameters["intermediate"],
        "model.num_experts": parameters["experts"],
        "model.num_experts_per_token": parameters["experts_per_token"],
        "training.gradient_checkpointing": False,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": "bfloat16",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward and backward at two widths and two hidden sizes."""
    from functools import partial

    models = recorder.load("tiny_models")
    model_type, hidden, width = parameters["model_type"], parameters["hidden"], parameters["intermediate"]
    if model_type not in models.MOE:
        recorder.unsupported(f"{model_type} is no mixture of experts")
    chosen = None if parameters["implementation"] == "default" else parameters["implementation"]
    inputs = models.batch(
        model_type,
        recorder,
        size=parameters["batch"],
        length=parameters["length"],
        vocab=models.DIMENSIONS["vocab"],
    )

    def build(hidden: int, width: int) -> Any:
        return models.build(
            model_type,
            recorder,
            experts=chosen,
            layers=parameters["layers"],
            hidden=hidden,
            intermediate=width,
            expert_count=parameters["experts"],
            experts_per_token=parameters["experts_per_token"],
        )

    model = build(hidden, width)
    with recorder.phase("forward"):
        loss = model(**inputs).logits.float().sum()
    with recorder.phase("backward"):
        loss.backward()
    del model, loss
    left = {}
    for size in (hidden, 2 * hidden):
        for wide in (width, 2 * width):
            model = build(size, wide)
            _, _, left[size, wide] = recorder.measure(partial(model, **inputs))
            del model
    growth = {size: left[size, 2 * width] - left[size, width] for size in (hidden, 2 * hidden)}
    recorder.result("expert_bytes", growth[hidden])
    recorder.result("gathered_weight_bytes", growth[2 * hidden] - growth[hidden])
