"""Bytes per logit of a model that accelerate prepared for mixed precision: does its wrapper copy the outputs to float32?

An embedding and a head in bfloat16, prepared by ``Accelerator(mixed_precision=...)``, return logits of two vocabularies; the
difference of two peaks, divided by the logits that were added, is bytes per logit. Weights are alive before and not in it.
``of`` says what is judged as ``bytes_per_logit``: ``scoring``, the peak of a forward under no_grad, or ``kept``, what a
training forward leaves alive while its outputs are held.

Prediction. The logits themselves are all that is needed: 2 bytes, in scoring and kept.

``Accelerator.prepare`` wraps forward in ``convert_outputs_to_fp32`` unless ``keep_fp32_outputs`` is False (the probe then takes
the wrapper off with ``unwrap_model(keep_fp32_wrapper=False)``): the 16-bit logits and their copy are alive together, 2 + 4 = 6
in scoring, and the copy alone is kept: 4 (the cast saves nothing for backward). So the pitfall costs 4 bytes per logit in
scoring and 2 while outputs are held. Source: accelerate 1.15.0 accelerator.py prepare_model(), utils/operations.py
convert_to_fp32(). CUDA: the same operators, never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("accelerate",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "of": "scoring",
    "keep_fp32_outputs": True,
    "mixed_precision": "bf16",
    "batch": 2,
    "length": 64,
    "vocab": 2048,
    "hidden": 16,
}
SIZES = (
    {"keep_fp32_outputs": False},
    {"keep_fp32_outputs": False, "of": "kept", "batch": 3, "vocab": 1024},
    {"mixed_precision": "no", "length": 32},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"of": ("scoring", "kept"), "mixed_precision": ("no", "bf16")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "mixed_precision": ("no", "bf16")}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of a bfloat16."""
    return {"bytes_per_logit": 2}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the slope is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller vocabulary in the vocabulary's names."""
    return {
        "model.vocab_size": parameters["vocab"],
        "training.framework": "accelerate",
        # Scoring sequence by sequence is what KTO does, keeping outputs what a loop of one's own does.
        "training.trainer": "kto" if parameters["of"] == "scoring" else "causal_lm",
        "training.sharding": "none",
        "training.mixed_precision": parameters["mixed_precision"],
        "training.keep_fp32_outputs": parameters["keep_fp32_outputs"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        "run.outputs_kept": parameters["of"] == "kept",
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return that the logits are built."""
    return {"training.loss_implementation": "cross_entropy"}


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Score, and run a training forward, at both vocabularies."""
    from functools import partial

    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from torch import nn

    class Model(nn.Module):
        def __init__(self, vocab: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocab, parameters["hidden"])
            self.head = nn.Linear(parameters["hidden"], vocab, bias=False)

        def forward(self, tokens: Any) -> dict[str, Any]:
            return {"logits": self.head(self.embedding(tokens))}

    # The state is one per process: another task's precision must not be found here, nor this one's there.
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        accelerator = Accelerator(mixed_precision=parameters["mixed_precision"], cpu=recorder.backend != "cuda")
        found: dict[str, list[int]] = {"scoring": [], "kept": []}
        for vocab in (parameters["vocab"], 2 * parameters["vocab"]):
            model = accelerator.prepare(Model(vocab).to(torch.bfloat16))
            if not parameters["keep_fp32_outputs"]:
                model = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
            tokens = torch.randint(0, vocab, (parameters["batch"], parameters["length"]), device=recorder.device)

            def score(model: Any = model, tokens: Any = tokens) -> Any:
                with torch.no_grad():
                    return model(tokens)

            found["scoring"].append(recorder.measure(score)[1])
            with recorder.phase("forward"):
                outputs, _, left = recorder.measure(partial(model, tokens))
            found["kept"].append(left)
            del model, score, outputs
            accelerator.free_memory()
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    logits = parameters["batch"] * parameters["length"] * parameters["vocab"]
    for name, (small, large) in found.items():
        recorder.result(f"{name}_bytes_per_logit", (large - small) / logits)
        if name == parameters["of"]:
            recorder.result("bytes_per_logit", (large - small) / logits)
            recorder.result("logits_bytes", large - small)
