"""Peak of loading a model, over what it weighs when it is loaded.

A tiny model of ``model_type`` is saved in float32 as safetensors, in one file, and loaded with ``from_pretrained`` in
bfloat16 on the CPU. What the allocator gives is counted; pages of a mapped file are not in it, and because the dtype changes
no parameter can stay in them.

Prediction. Each parameter once, and nothing else of its size: ``excess_bytes``, peak less parameters and buffers, is 0, at
most the largest tensor once more while it is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {"model_type": "llama", "hidden": 256, "layers": 4, "vocab": 2048}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"hidden": 128, "layers": 8, "vocab": 4096})
METRIC = "excess_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing beyond the model."""
    return {"excess_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the bytes of the largest tensor, the embedding, and of small buffers."""
    return 2 * parameters["vocab"] * parameters["hidden"] + 65536


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.hidden_size": parameters["hidden"],
        "model.vocab_size": parameters["vocab"],
        "model.load_dtype": "bfloat16",
        "model.stored_dtype": "float32",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Save and load."""
    import tempfile

    import torch

    models = recorder.load("tiny_models")
    model = models.build(
        parameters["model_type"],
        recorder,
        dtype="float32",
        hidden=parameters["hidden"],
        layers=parameters["layers"],
        vocab=parameters["vocab"],
    )
    name = "dtype" if models.release() >= models.parse("4.56.0") else "torch_dtype"
    class_ = type(model)
    with tempfile.TemporaryDirectory() as folder:
        models.save(model, folder)
        del model
        loaded, peak, left = recorder.measure(lambda: class_.from_pretrained(folder, **{name: torch.bfloat16}))
    bytes_ = sum(tensor.nbytes for tensor in (*loaded.parameters(), *loaded.buffers()))
    recorder.result("model_bytes", bytes_)
    recorder.result("left_bytes", left)
    recorder.result("peak_bytes", peak)
    recorder.result("excess_bytes", peak - bytes_)
