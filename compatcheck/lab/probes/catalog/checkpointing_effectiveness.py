"""Bytes that one more layer keeps alive after forward when gradient checkpointing is on.

A tiny model of ``model_type`` is built with ``layers`` and with twice as many layers, and run forward on ``batch`` sequences,
with checkpointing and without. The slope over layers leaves out embeddings, logits and everything else that does not repeat.

Prediction. A checkpointed layer keeps its input and nothing else, so ``bytes_per_layer`` is 2 (bfloat16) x batch x length x
hidden; an encoder-decoder gets one more layer on either side, twice that. ``share`` is what remains of the slope without
checkpointing: near 1, checkpointing is on in name only. Up to one more hidden state per layer is taken for healthy: some
architectures hand a second one on. ``use_reentrant`` None is whatever the release does by default (the reentrant variant
until 4.57, the other from 5.0); both keep the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("cpu", "cuda", "fake")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "model_type": "llama",
    "use_reentrant": None,
    "layers": 2,
    "batch": 2,
    "length": 32,
    "hidden": 64,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"length": 48, "hidden": 128},
    {"model_type": "qwen2", "use_reentrant": True, "batch": 3},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"use_reentrant": (None, False, True)}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,)}
METRIC = "bytes_per_layer"


def _state(parameters: Mapping[str, Any]) -> int:
    from compatcheck.lab.probes.catalog._tiny_models import states

    rows = states(parameters["model_type"], parameters["length"])
    return int(2 * parameters["batch"] * rows * parameters["hidden"])


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return one hidden state in bfloat16."""
    return {"bytes_per_layer": _state(parameters)}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return one more hidden state."""
    return _state(parameters)


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    chosen = parameters["use_reentrant"]
    return {
        **({} if chosen is None else {"training.use_reentrant": chosen}),
        "model.model_type": parameters["model_type"],
        "model.hidden_size": parameters["hidden"],
        "model.num_hidden_layers": 2 * parameters["layers"],
        "model.use_cache": False,
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": "bfloat16",
        "run.attention_mask": "ones",
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bare loop in one dtype does."""
    return {
        "training.fsdp_activation_checkpointing": False,
        "training.param_dtype": "bfloat16",
        "training.mixed_precision": "no",
        "training.sharding": "none",
        "training.use_liger_kernel": False,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward at two depths, with checkpointing and without."""
    from functools import partial

    models = recorder.load("tiny_models")
    model_type, layers = parameters["model_type"], parameters["layers"]
    inputs = models.batch(
        model_type,
        recorder,
        size=parameters["batch"],
        length=parameters["length"],
        vocab=models.DIMENSIONS["vocab"],
    )
    left: dict[tuple[bool, int], int] = {}
    for depth in (layers, 2 * layers):
        model = models.build(model_type, recorder, layers=depth, hidden=parameters["hidden"])
        _, _, left[False, depth] = recorder.measure(partial(model, **inputs))
        models.checkpoint(model, recorder, reentrant=parameters["use_reentrant"])
        _, _, left[True, depth] = recorder.measure(partial(model, **inputs))
        del model
    slope = {on: (left[on, 2 * layers] - left[on, layers]) / layers for on in (False, True)}
    recorder.result("bytes_per_layer", slope[True])
    recorder.result("bytes_per_layer_without", slope[False])
    recorder.result("share", slope[True] / slope[False])
