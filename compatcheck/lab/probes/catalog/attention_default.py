"""The implementation of attention that a model gets when nobody names one.

A tiny model of ``model_type`` is made from its configuration alone.

Prediction. ``implementation`` is a code: 0 for one that keeps no scores (sdpa, flash, flex), 1 for eager. A healthy release
chooses the former: 0. Eager keeps 6 bytes for each score, see the probe attention_scores; types that need it are judged bad
all the same.
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
DEFAULTS: Mapping[str, Any] = {"model_type": "llama", "layers": 1}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"model_type": "qwen2", "layers": 2})
METRIC = "implementation"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the code of what keeps no scores."""
    return {"implementation": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: it is a code."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {"model.model_type": parameters["model_type"], "model.num_hidden_layers": parameters["layers"]}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Ask a model what it has chosen."""
    models = recorder.load("tiny_models")
    model = models.build(parameters["model_type"], recorder, layers=parameters["layers"])
    chosen = models.attention_of(model)
    recorder.note(f"attention is {chosen}")
    recorder.result("implementation", int(chosen == "eager"))
