"""Bytes per logit of the first step of ``generate()``, and of outputs that a training loop keeps.

A tiny causal model of ``model_type`` in ``dtype`` draws one token for ``batch`` prompts, and runs forward with labels while its
output is held. Measured at two vocabularies and two lengths; the mixed difference of four numbers, divided by the logits that
were added, is bytes per logit, free of weights, of the cache and of what sampling takes for the last position. ``of`` says
which is judged as ``bytes_per_logit``: ``prefill``, a peak, or ``kept``, what forward leaves with its output.

Prediction, weights in bfloat16:
- ``prefill`` needs the logits of the last position alone: 0.
- ``kept``: the logits 2, and the log-probabilities in float32 that the loss saves for backward 4 = 6. A type that hands out
  float32 logits keeps 4 + 4 = 8.

Source: transformers generation/utils.py _sample(), loss/loss_utils.py ForCausalLMLoss() and the modeling files.
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
    "of": "prefill",
    "dtype": "bfloat16",
    "batch": 2,
    "length": 64,
    "vocab": 2048,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"batch": 3, "vocab": 3072}, {"of": "kept", "length": 96})
CHOICES: Mapping[str, tuple[Any, ...]] = {"of": ("prefill", "kept"), "dtype": ("bfloat16", "float32")}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per logit."""
    kept = 6 if parameters["dtype"] == "bfloat16" else 8
    values = {"prefill_bytes_per_logit": 0, "kept_bytes_per_logit": kept}
    return {**values, "bytes_per_logit": values[parameters["of"] + "_bytes_per_logit"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the mixed difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    generates = parameters["of"] == "prefill"
    return {
        "model.model_type": parameters["model_type"],
        "model.vocab_size": parameters["vocab"],
        "training.trainer": "ppo" if generates else "causal_lm",
        "training.micro_batch_size": parameters["batch"],
        "training.max_prompt_length" if generates else "training.sequence_length": parameters["length"],
        "training.compute_dtype": parameters["dtype"],
        "training.mixed_precision": "no",
        "training.sharding": "none",
        **({"rollout.engine": "hf"} if generates else {"run.outputs_kept": True}),
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bare loop does."""
    return {"program.passes_labels": True, "program.makes_logits": True, "training.use_liger_kernel": False}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Generate a token and keep an output, at two vocabularies and two lengths."""
    from functools import partial

    models = recorder.load("tiny_models")
    model_type, vocab, batch = parameters["model_type"], parameters["vocab"], parameters["batch"]
    if models.kind(model_type) != "causal":
        recorder.unsupported(f"{model_type} does not predict the next token")
    action = {"prefill": _generate, "kept": _keep}[parameters["of"]]
    found = []
    for size in (vocab, 2 * vocab):
        model = models.build(model_type, recorder, layers=1, vocab=size, dtype=parameters["dtype"])
        for length in (parameters["length"], 2 * parameters["length"]):
            inputs = models.batch(model_type, recorder, size=batch, length=length, vocab=vocab)
            del inputs["use_cache"]
            _, peak, left = recorder.measure(partial(action, model, inputs))
            found.append(peak if action is _generate else left)
        del model
    slope = (found[3] - found[2] - found[1] + found[0]) / (batch * parameters["length"] * vocab)
    recorder.result(f"{parameters['of']}_bytes_per_logit", slope)
    recorder.result("bytes_per_logit", slope)


def _generate(model: Any, inputs: Mapping[str, Any]) -> Any:
    model.eval()
    return model.generate(**inputs, max_new_tokens=1, do_sample=True, top_k=0)


def _keep(model: Any, inputs: Mapping[str, Any]) -> Any:
    model.train()
    return model(**inputs, labels=inputs["input_ids"], use_cache=False)
