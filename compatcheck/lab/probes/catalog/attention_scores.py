"""Bytes of attention scores that forward keeps for backward.

A tiny model of ``model_type`` runs forward at three sequence lengths, ``length``, twice and three times that. The second
difference of what is alive afterwards holds only what grows with the square of the length; ``score_bytes`` is that part at
``length``, ``bytes_per_score`` divides it by batch x layers x heads x length². The mask is all ones, which a healthy release
drops.

Prediction. Eager attention keeps the float32 probabilities of the softmax, 4 bytes, and their bfloat16 copy, 2: 6 bytes per
score. sdpa keeps none. Types that take the softmax in bfloat16 keep 2 (encoder-decoders have three such attentions per layer,
6 again), xglm two 16-bit tensors, gemma2 the result of tanh besides, 8; diffllama has twice the heads, mpt keeps one bool
mask. ``implementation`` ``default`` is what the release chooses by itself, and sdpa is what it is held against: a release or
a type without it is judged bad.
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
    "implementation": "default",
    "layers": 2,
    "batch": 2,
    "length": 32,
    "heads": 4,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {"implementation": "eager"},
    {"implementation": "eager", "length": 48, "heads": 2, "batch": 3},
    {"implementation": "sdpa"},
    {},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"implementation": ("default", "eager", "sdpa", "flash_attention_2")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,)}
METRIC = "score_bytes"

_EAGER = {
    **dict.fromkeys(
        ("gpt2", "falcon", "biogpt", "gpt_oss", "bert", "roberta", "xlm-roberta", "electra", "distilbert"), 2
    ),
    "xglm": 4,
    "gemma2": 8,
    "vaultgemma": 8,
    "diffllama": 12,
}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return 6 bytes per score for eager attention, none for anything else."""
    model_type, eager = parameters["model_type"], parameters["implementation"] == "eager"
    each = _EAGER.get(model_type, 6) if eager else 0
    square = parameters["batch"] * parameters["length"] ** 2
    bytes_ = each * square * parameters["layers"] * parameters["heads"] + square * (eager and model_type == "mpt")
    return {"score_bytes": bytes_, "bytes_per_score": bytes_ / (square * parameters["layers"] * parameters["heads"])}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the second difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    chosen = parameters["implementation"]
    return {
        **({} if chosen == "default" else {"model.attn_implementation": chosen}),
        "model.model_type": parameters["model_type"],
        "model.num_hidden_layers": parameters["layers"],
        "model.num_attention_heads": parameters["heads"],
        "model.use_cache": False,
        "training.gradient_checkpointing": False,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "training.compute_dtype": "bfloat16",
        "run.attention_mask": "ones",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run forward at three lengths."""
    from functools import partial

    models = recorder.load("tiny_models")
    model_type, length = parameters["model_type"], parameters["length"]
    if models.kind(model_type) == "vision":
        recorder.unsupported("images have one length here")
    if model_type in models.BIASED:
        recorder.unsupported(f"{model_type} adds a learned bias to every score")
    chosen = None if parameters["implementation"] == "default" else parameters["implementation"]
    model = models.build(
        model_type, recorder, implementation=chosen, layers=parameters["layers"], heads=parameters["heads"]
    )
    left = []
    for times in (1, 2, 3):
        inputs = models.batch(
            model_type, recorder, size=parameters["batch"], length=times * length, vocab=models.DIMENSIONS["vocab"]
        )
        left.append(recorder.measure(partial(model, **inputs))[2])
    bytes_ = (left[2] - 2 * left[1] + left[0]) // 2
    scores = parameters["batch"] * parameters["layers"] * parameters["heads"] * length**2
    recorder.result("score_bytes", bytes_)
    recorder.result("bytes_per_score", bytes_ / scores)
    recorder.result("uses_sdpa", int(models.attention_of(model) == "sdpa"))
