"""Bytes per logit of forward with labels, of a whole training step, and of inference.

A tiny causal model of ``model_type`` is run at two vocabularies, ``vocab`` and twice that; the difference of two peaks is
what grows with the vocabulary, divided by the logits that were added it is bytes per logit. Weights are not in it: peaks
count from what is alive before. ``batch`` is at least 2, because with one sequence a shifted slice is contiguous and its copy
hides.

Prediction, weights in bfloat16, ``of`` says which of the three is judged as ``bytes_per_logit``:
- ``forward`` with labels: logits 2, their float32 copy 4, log-probabilities 4 = 10. All three are alive inside the loss.
- ``step``, outputs dropped before backward: log-probabilities 4, the float32 gradient that reaches them 4 and the one that
  leaves them 4 = 12; the float32 logits are gone by then.
- ``inference`` under no_grad, without labels: logits 2.
A type that caps its logits with tanh keeps the 16-bit result of tanh for backward: 2 more in forward and step; without
gradients two 16-bit tensors are alive while each operation of the cap runs: 4. Scaled logits (cohere, granite) are
alive twice while they are scaled: 4 in inference, nothing more with labels.
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
    "of": "forward",
    "batch": 2,
    "length": 64,
    "vocab": 4096,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"batch": 3, "vocab": 5120},
    {"of": "step"},
    {"of": "inference", "length": 96},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"of": ("forward", "step", "inference")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,)}
METRIC = "bytes_per_logit"

_CAPPED = {"gemma2", "vaultgemma"}
_SCALED = {"cohere", "cohere2", "granite", "granitemoe"}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per logit."""
    capped, scaled = parameters["model_type"] in _CAPPED, parameters["model_type"] in _SCALED
    values = {
        "forward_bytes_per_logit": 10 + 2 * capped,
        "step_bytes_per_logit": 12 + 2 * capped,
        "inference_bytes_per_logit": 4 if capped or scaled else 2,
    }
    return {**values, "bytes_per_logit": values[parameters["of"] + "_bytes_per_logit"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the slope is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller vocabulary in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.vocab_size": parameters["vocab"],
        "training.trainer": "causal_lm",
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.param_dtype": "bfloat16",
        "training.compute_dtype": "bfloat16",
        "training.mixed_precision": "no",
        "training.loss_implementation": "cross_entropy",
        "run.outputs_kept": False,
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bare loop does: labels are passed, and nothing is sharded, packed or replaced."""
    return {
        "program.passes_labels": True,
        "program.makes_logits": True,
        "program.skips_unlabelled_logits": False,
        "program.casts_logits": False,
        "program.converts_outputs": False,
        "training.sharding": "none",
        "training.use_liger_kernel": False,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward, step and inference at both vocabularies."""
    from functools import partial

    models = recorder.load("tiny_models")
    model_type, vocab = parameters["model_type"], parameters["vocab"]
    if models.kind(model_type) != "causal":
        recorder.unsupported(f"{model_type} does not predict the next token")
    peaks: dict[str, list[int]] = {"forward": [], "step": [], "inference": []}
    for size in (vocab, 2 * vocab):
        model = models.build(model_type, recorder, layers=1, vocab=size)
        inputs = models.batch(model_type, recorder, size=parameters["batch"], length=parameters["length"], vocab=vocab)
        labels = {**inputs, "labels": inputs["input_ids"]}

        peaks["inference"].append(recorder.measure(partial(_infer, model, inputs))[1])
        peaks["forward"].append(recorder.measure(partial(_loss, model, labels))[1])
        # The loss of the line before is gone; so is its graph.
        peaks["step"].append(recorder.measure(partial(_step, model, labels))[1])
        del model
    logits = parameters["batch"] * parameters["length"] * vocab
    for name, (small, large) in peaks.items():
        recorder.result(f"{name}_bytes_per_logit", (large - small) / logits)
        if name == parameters["of"]:
            recorder.result("bytes_per_logit", (large - small) / logits)


def _infer(model: Any, inputs: Mapping[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        return model(**inputs)


def _loss(model: Any, inputs: Mapping[str, Any]) -> Any:
    return model(**inputs).loss


def _step(model: Any, inputs: Mapping[str, Any]) -> None:
    _loss(model, inputs).backward()
