"""Bytes per parameter of a 16-bit checkpoint that is loaded without naming a dtype.

A tiny model of ``model_type`` is saved in bfloat16 as safetensors and loaded again with ``from_pretrained``; ``dtype`` says
how: ``unset``, ``auto`` or ``bfloat16``.

Prediction. A model in the dtype that it is stored in has 2 bytes for each of its distinct parameters: ``bytes_per_parameter``
is 2.
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
DEFAULTS: Mapping[str, Any] = {"model_type": "llama", "dtype": "unset", "hidden": 64, "layers": 2}
SIZES: tuple[Mapping[str, Any], ...] = ({"dtype": "auto"}, {"dtype": "bfloat16", "hidden": 128})
CHOICES: Mapping[str, tuple[Any, ...]] = {"dtype": ("unset", "auto", "bfloat16")}
METRIC = "bytes_per_parameter"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of a bfloat16."""
    return {"bytes_per_parameter": 2}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return a tenth: some types keep norms or routers in float32."""
    return 0.2


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.stored_dtype": "bfloat16",
        **({} if parameters["dtype"] == "unset" else {"model.load_dtype": "bfloat16"}),
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Save, load, weigh."""
    import tempfile

    import torch

    models = recorder.load("tiny_models")
    model = models.build(parameters["model_type"], recorder, hidden=parameters["hidden"], layers=parameters["layers"])
    name = "dtype" if models.release() >= models.parse("4.56.0") else "torch_dtype"
    wanted = {"unset": {}, "auto": {name: "auto"}, "bfloat16": {name: torch.bfloat16}}[parameters["dtype"]]
    class_ = type(model)
    with tempfile.TemporaryDirectory() as folder:
        models.save(model, folder)
        del model
        loaded = class_.from_pretrained(folder, **wanted)
    weights = list(loaded.parameters())
    recorder.result("bytes_per_parameter", sum(w.nbytes for w in weights) / sum(w.numel() for w in weights))
