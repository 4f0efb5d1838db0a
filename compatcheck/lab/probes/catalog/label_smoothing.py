"""Bytes per logit of the label smoother of transformers' Trainer, in its own ``compute_loss`` and in backward.

A llama of width 8 in ``dtype`` goes through ``Trainer.compute_loss`` with ``label_smoothing_factor: 0.1``. ``mixed`` means
float32 weights under bfloat16 autocast, whose outputs accelerate casts to float32. Measured at two vocabularies and two
lengths; the mixed difference of four peaks divided by the logits that were added is bytes per logit. ``of`` says which is
judged: ``forward``, what is ``kept`` of it, or ``backward``, with what forward kept.

Prediction, with d the bytes of a logit as the smoother is given it (2 or 4), which casts nothing:

- ``forward``: the logits, which the model's output holds, their shifted copy (of one sequence all but the last token are
  contiguous as they are), the log-probabilities and their negative: 4 d, or 3 d with one sequence.
- ``kept``: log-probabilities, which log-softmax saved, and their negative, which ``gather`` saved: 2 d.
- ``backward``: both, and the gradient of what was gathered, d, scattered into zeros. The gradient of the sum is a scalar for
  each token, expanded; for 16-bit logits it is cast and so made, d more. Of float32 ones the sum of both gradients is
  another tensor, but the negative is gone by then: 3 d = 12. Of 16-bit ones it is added in place: 4 d = 8.

A CPU needs more of 16-bit logits, and no GPU does: the sum in float32 casts its input, 4 (``make_reduction`` of
ATen/native/ReduceOpsUtils.h reads 16-bit values on CUDA), and ``scatter_add_`` adds up in float32, 4 (``create_acc_buffer`` of
ATen/native/cpu/ScatterGatherKernel.cpp). So forward takes 4 d + 4 = 12,
or 3 d + 4 = 10, and backward 4 d + 4 = 12. Counted by the allocator: under a mode nothing is added in place.

The smoother is the same from 4.36 to 5.14, and from 5.15 divides by another number. Source: trainer.py ``compute_loss``,
trainer_pt_utils.py ``LabelSmoother``. Up to 4.45 llama casts its logits to float32 itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers", "accelerate")
SHARES = ("tiny_models",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {"of": "backward", "dtype": "bfloat16", "batch": 4, "length": 64, "vocab": 4096}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"of": "forward", "batch": 3, "vocab": 5120},
    {"of": "forward", "batch": 1, "length": 256},
    {"of": "kept", "batch": 2, "length": 96},
    {"dtype": "float32"},
    {"dtype": "float32", "of": "forward", "length": 96},
    {"dtype": "mixed", "of": "forward"},
    {"dtype": "mixed", "of": "backward", "batch": 1, "length": 256},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "of": ("forward", "kept", "backward"),
    "dtype": ("bfloat16", "float32", "mixed"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "dtype": ("bfloat16", "float32")}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per logit on a CPU."""
    half, copied = parameters["dtype"] == "bfloat16", parameters["batch"] > 1
    each, cast = (2, 4) if half else (4, 0)
    values = {
        "forward_bytes_per_logit": each * (4 if copied else 3) + cast,
        "kept_bytes_per_logit": 2 * each,
        "backward_bytes_per_logit": each * (4 if half else 3) + cast,
    }
    return {**values, "bytes_per_logit": values[parameters["of"] + "_bytes_per_logit"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the mixed difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    return {
        "model.model_type": "llama",
        "model.vocab_size": parameters["vocab"],
        "model.load_dtype": "float32" if parameters["dtype"] == "mixed" else parameters["dtype"],
        "training.framework": "hf_trainer",
        "training.trainer": "causal_lm",
        "training.label_smoothing": 0.1,
        "training.loss_implementation": "smoothed",
        "training.use_liger_kernel": False,
        "training.gradient_checkpointing": False,
        "training.mixed_precision": "bf16" if parameters["dtype"] == "mixed" else "no",
        "training.sharding": "none",
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss and its gradient at two vocabularies and two lengths."""
    batch, length, vocab = parameters["batch"], parameters["length"], parameters["vocab"]
    models = recorder.load("tiny_models")
    peaks: dict[str, list[int]] = {"forward": [], "kept": [], "backward": []}
    for size in (vocab, 2 * vocab):
        trainer, model = _prepare(parameters, recorder, models, size)
        for count in (length, 2 * length):
            inputs = models.batch("llama", recorder, size=batch, length=count, vocab=vocab)
            inputs = {**inputs, "labels": inputs["input_ids"]}

            def forward(trainer: Any = trainer, model: Any = model, inputs: Any = inputs) -> Any:
                return trainer.compute_loss(model, dict(inputs))

            forward().backward()  # what a first call sets up stays, gradients of the weights among it
            with recorder.phase("forward"):
                loss, peak, kept = recorder.measure(forward)
            peaks["forward"].append(peak)
            peaks["kept"].append(kept)
            held = [loss]
            del loss
            with recorder.phase("backward"):
                _, peak, _ = recorder.measure(lambda held=held: held.pop().backward())  # type: ignore[misc]  # bound at once
            peaks["backward"].append(kept + peak)
        del trainer, model, forward
    logits = batch * length * vocab
    for name, (first, longer, wider, both) in peaks.items():
        value = (both - wider - longer + first) / logits
        recorder.result(f"{name}_bytes_per_logit", value)
        if name == parameters["of"]:
            recorder.result("bytes_per_logit", value)


def _prepare(parameters: Mapping[str, Any], recorder: Recorder, models: Any, vocab: int) -> tuple[Any, Any]:
    """Return a trainer that smooths labels, and its model as the training loop prepares it."""
    import os
    import tempfile

    from accelerate.state import AcceleratorState
    from transformers import Trainer, TrainingArguments

    # One process takes several measurements, and both of these remember the precision of the one before.
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    mixed = parameters["dtype"] == "mixed"
    dimensions = {"layers": 1, "hidden": 8, "heads": 1, "kv_heads": 1, "intermediate": 8}
    weights = "float32" if mixed else parameters["dtype"]
    positions = 2 * parameters["length"]
    model = models.build("llama", recorder, vocab=vocab, positions=positions, dtype=weights, **dimensions)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, label_smoothing_factor=0.1, bf16=mixed, report_to="none", use_cpu=recorder.backend != "cuda"
        )
        trainer = Trainer(model, arguments)
    prepared = trainer.accelerator.prepare_model(model)  # autocast and the cast of outputs
    prepared.train()
    return trainer, prepared
