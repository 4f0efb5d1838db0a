"""Bytes of the KV cache that a forward under ``no_grad`` of a checkpointed model in training mode leaves.

A tiny causal model of ``model_type`` trains with gradient checkpointing and reads ``batch`` sequences of ``length`` tokens, as
for the log-probabilities of a reference that is the policy without its adapters; nobody asks for a cache, nor for none. Only its
cache is kept.

Prediction. None: the model is in training mode, where a cache is of no use, and releases up to 5.23 of transformers make none.
One that is left is 2 x 2 bytes x layers x kv_heads x head_dim x batch x length in bfloat16.
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
DEFAULTS: Mapping[str, Any] = {"model_type": "llama", "layers": 2, "batch": 2, "length": 32, "kv_heads": 2}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"length": 48, "kv_heads": 1, "layers": 3})
METRIC = "cache_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of keys and values: none."""
    return {"cache_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the bytes of the few numbers that a cache may keep about itself."""
    return 64 * parameters["layers"]


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.num_hidden_layers": parameters["layers"],
        "model.num_key_value_heads": parameters["kv_heads"],
        "model.head_dim": 16,
        "model.sliding_window": None,
        "model.use_cache": True,
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": "bfloat16",
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return that the program leaves the cache to the model, and scores beside its training."""
    return {"training.trainer": "causal_lm", "program.use_cache": True, "run.no_grad_forward_between": True}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Score the sequences and keep the cache."""
    import torch

    models = recorder.load("tiny_models")
    model_type = parameters["model_type"]
    if models.kind(model_type) != "causal":
        recorder.unsupported("only causal models have a cache here")
    model = models.build(model_type, recorder, layers=parameters["layers"], kv_heads=parameters["kv_heads"])
    size, length = parameters["batch"], parameters["length"]
    inputs = models.batch(model_type, recorder, size=size, length=length, vocab=models.DIMENSIONS["vocab"])
    del inputs["use_cache"]
    models.checkpoint(model, recorder, reentrant=None)

    def score() -> Any:
        with torch.no_grad():
            return getattr(model(**inputs), "past_key_values", None)

    _cache, _, left = recorder.measure(score)
    recorder.result("cache_bytes", left)
