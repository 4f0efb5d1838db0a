"""Bytes of the KV cache that a forward pass leaves.

A tiny causal model of ``model_type`` reads ``batch`` prompts of ``length`` tokens with ``use_cache`` and only its cache is
kept.

Prediction. Keys and values in bfloat16, for each layer, key and value head and token: 2 x 2 x layers x kv_heads x head_dim x
batch x length (``cache_bytes``); deepseek_v3 needs only what keys and values are made from, kv_lora_rank + qk_rope_head_dim
values. More than that means that the cached tensors are views that keep a larger one alive, as a fused projection of queries,
keys and values. With ``training`` the model trains with gradient checkpointing and nobody asks for a cache, nor for none: a
cache would be of no use, and none may be left.
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
    "training": False,
    "layers": 2,
    "batch": 2,
    "length": 32,
    "kv_heads": 2,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"length": 48, "kv_heads": 1, "layers": 3}, {"training": True})
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "training": (True, False)}
METRIC = "cache_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of keys and values."""
    from compatcheck.lab.probes.catalog._tiny_models import kv_values

    values = kv_values(parameters["model_type"], {"kv_heads": parameters["kv_heads"]})
    tokens = parameters["batch"] * parameters["length"]
    return {"cache_bytes": 0 if parameters["training"] else 2 * parameters["layers"] * tokens * values}


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
        "model.use_cache": True,
        "training.gradient_checkpointing": parameters["training"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": "bfloat16",
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return who generates, or who lets the model cache while it trains."""
    return (
        {"training.trainer": "causal_lm", "program.use_cache": True}
        if parameters["training"]
        else {"training.trainer": "ppo", "rollout.engine": "hf"}
    )


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Read the prompts and keep the cache."""
    import torch

    models = recorder.load("tiny_models")
    model_type = parameters["model_type"]
    if models.kind(model_type) != "causal":
        recorder.unsupported("only causal models have a cache here")
    model = models.build(model_type, recorder, layers=parameters["layers"], kv_heads=parameters["kv_heads"])
    inputs = models.batch(
        model_type,
        recorder,
        size=parameters["batch"],
        length=parameters["length"],
        vocab=models.DIMENSIONS["vocab"],
    )
    del inputs["use_cache"]
    if parameters["training"]:
        models.checkpoint(model, recorder, reentrant=None)
        output = model(**inputs)
        cache = getattr(output, "past_key_values", None)
        recorder.result("cache_bytes", _stored_bytes(cache))
        return
    model.eval()

    def read() -> Any:
        with torch.no_grad():
            return model(**inputs, use_cache=True).past_key_values

    cache, _, left = recorder.measure(read)
    if cache is None:
        recorder.unsupported(f"{type(model).__name__} returns no cache")
    recorder.result("cache_bytes", left)
    recorder.result("stored_bytes", _stored_bytes(cache))


def _stored_bytes(cache: Any) -> int:
    """Return the bytes of the storages that a cache refers to: tuples, `DynamicCache` of any release."""
    import torch

    storages: dict[int, int] = {}
    seen: set[int] = set()
    pending = [cache]
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor):
            storage = item.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif (
            hasattr(item, "__dict__") and "ache" in type(item).__name__ + type(item).__module__ and id(item) not in seen
        ):
            seen.add(id(item))
            pending.extend(vars(item).values())
    return sum(storages.values())
