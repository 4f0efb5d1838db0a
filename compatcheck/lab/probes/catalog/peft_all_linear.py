"""Whether peft finds the layers that ``all-linear`` names in a model of ``model_type``.

``get_peft_model`` puts LoRA on a tiny model, with the ``targets`` that a user writes. Types whose experts transformers 5 keeps as
one parameter need their names turned into others first, and some releases turn the letters of a name (huggingface/peft#3232).

Prediction: `failures`, 1 where that raises ValueError and 0 where adapters were made, is 0. How many linear layers got one is
stated as `adapted`.

Source: peft utils/transformers_weight_conversion.py and tuners/tuners_utils.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("peft", "transformers")
SHARES = ("tiny_models",)
BACKENDS = ("cpu",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"model_type": "qwen3_moe", "targets": "all-linear"}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"model_type": "llama"}, {"targets": "q_proj"})
CHOICES: Mapping[str, tuple[Any, ...]] = {"targets": ("all-linear", "q_proj")}
METRIC = "failures"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return no failure."""
    return {"failures": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: it is made or not."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    experts = parameters["model_type"].endswith("moe") or parameters["model_type"] == "mixtral"
    return {
        "model.model_type": parameters["model_type"],
        "model.num_experts": 4 if experts else 0,
        "training.peft": "lora",
        "training.lora_target_modules": [parameters["targets"]],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Make the adapters."""
    import peft

    models = recorder.load("tiny_models")
    model = models.build(parameters["model_type"], recorder)
    named = parameters["targets"]
    config = peft.LoraConfig(r=2, target_modules=named if named == "all-linear" else [named], task_type="CAUSAL_LM")
    try:
        adapted = peft.get_peft_model(model, config)
    except ValueError as error:
        recorder.note(" ".join(str(error).split())[:160])
        recorder.result("failures", 1)
        return
    recorder.result("failures", 0)
    recorder.result("adapted", sum(name.endswith("lora_A") for name, _ in adapted.named_modules()))
