"""Bytes that asking for attention weights adds to a training step under sdpa.

A tiny model of ``model_type`` with sdpa attention runs forward on a mask of ones and backward, once as it is and once with
``output_attentions``; what it returns beside the loss is dropped before backward. ``kept_bytes`` is what is alive after forward
in the second run and was not in the first; ``peak_bytes`` the same of the peak of the step.

Prediction. sdpa has no attention weights to return. A healthy release says so and goes on with sdpa: 0. One that hands the
call to its eager code keeps the float32 probabilities and their 16-bit copy of every layer, 6 bytes x batch x layers x heads x
length² (for softmaxes in float32: see the probe attention_scores), and the mask that eager attention adds to the scores. From
4.53 a model asked in the call stays with sdpa and returns None (transformers 4.52.4 and 4.53.0, models/llama/modeling_llama.py);
before 4.36 there is no sdpa to leave.
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
    "model_type": "llama",
    "layers": 4,
    "batch": 2,
    "length": 128,
    "hidden": 32,
    "heads": 4,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"model_type": "qwen2", "length": 48, "heads": 2, "batch": 3})
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,)}
METRIC = "kept_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing: what sdpa cannot return costs nothing."""
    return {"kept_bytes": 0, "peak_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: both runs hold the same tensors."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run that asks for attentions in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.attn_implementation": "sdpa",
        "model.output_attentions": True,
        "model.hidden_size": parameters["hidden"],
        "model.num_hidden_layers": parameters["layers"],
        "model.num_attention_heads": parameters["heads"],
        "model.use_cache": False,
        "training.gradient_checkpointing": False,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.param_dtype": "bfloat16",
        "training.compute_dtype": "bfloat16",
        "run.attention_mask": "ones",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run a step without attentions and one with them."""
    from functools import partial

    models = recorder.load("tiny_models")
    model_type = parameters["model_type"]
    if models.kind(model_type) != "causal":
        recorder.unsupported(f"{model_type} does not predict the next token")
    model = models.build(
        model_type,
        recorder,
        implementation="sdpa",
        layers=parameters["layers"],
        hidden=parameters["hidden"],
        heads=parameters["heads"],
        positions=max(models.DIMENSIONS["positions"], parameters["length"]),
    )
    inputs = models.batch(
        model_type,
        recorder,
        size=parameters["batch"],
        length=parameters["length"],
        vocab=models.DIMENSIONS["vocab"],
    )
    inputs["labels"] = inputs["input_ids"]
    for parameter in model.parameters():
        parameter.grad = parameter.detach().clone()  # so that neither step makes them
    left, peaks = [], []
    for asked in (False, True):
        arguments = {**inputs, "output_attentions": asked}
        left.append(recorder.measure(partial(_loss, model, arguments))[2])
        peaks.append(recorder.measure(partial(_step, model, arguments))[1])
    recorder.result("kept_bytes", left[1] - left[0])
    recorder.result("peak_bytes", peaks[1] - peaks[0])


def _loss(model: Any, arguments: Mapping[str, Any]) -> Any:
    return model(**arguments).loss


def _step(model: Any, arguments: Mapping[str, Any]) -> None:
    _loss(model, arguments).backward()
