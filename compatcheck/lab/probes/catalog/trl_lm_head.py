"""Bytes per weight of the output projection at the peak of trl's chunked loss, in SFTTrainer's own ``compute_loss``.

A llama of one layer goes through ``SFTTrainer.compute_loss`` with ``loss_type: chunked_nll`` at two vocabularies and two widths.
The mixed difference of four peaks grows with vocabulary x width alone, as the output projection does; divided by the weights that
were added it is bytes per weight over what the model itself holds. The batch fits in one chunk, and has few tokens beside the
width: logits, vocabulary x tokens, are no part of the difference.

Prediction. The projection is multiplied as it is: 0. trl 1.4 to 1.12 turn it into float32 in each chunk, and again as the chunk
is recomputed in backward: 4 for bfloat16 weights, 0 for float32 ones. CUDA: the same operators, never run; from 1.14 a Triton
kernel there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("trl", "transformers")
SHARES = ("tiny_models", "tiny_trainers")
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"dtype": "bfloat16", "batch": 2, "length": 8, "vocab": 512, "hidden": 256}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"vocab": 768, "hidden": 384})
CHOICES: Mapping[str, tuple[Any, ...]] = {"dtype": ("bfloat16", "float32")}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (1,), "dtype": ("bfloat16", "float32")}
METRIC = "head_bytes"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing."""
    return {"head_bytes": 0, "head_bytes_per_weight": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the mixed difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    return {
        "model.model_type": "llama",
        "model.vocab_size": parameters["vocab"],
        "model.hidden_size": parameters["hidden"],
        "model.load_dtype": parameters["dtype"],
        "training.framework": "trl",
        "training.trainer": "sft",
        "training.loss_type": "chunked_nll",
        "training.use_liger_kernel": False,
        "training.gradient_checkpointing": False,
        "training.mixed_precision": "no",
        "training.sharding": "none",
        "training.peft": None,
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss at two vocabularies and two widths."""
    import dataclasses
    import tempfile

    import trl

    models, trainers = recorder.load("tiny_models"), recorder.load("tiny_trainers")
    batch, length = parameters["batch"], parameters["length"]
    choices = {field.name: field for field in dataclasses.fields(trl.SFTConfig)}
    if "chunked_nll" not in str(choices["loss_type"].metadata.get("help", "") if "loss_type" in choices else ""):
        recorder.unsupported("needs trl >= 1.4, which has the chunked loss")
    dimensions = {"layers": 1, "heads": 1, "kv_heads": 1, "intermediate": 8, "positions": 4 * length}
    peaks = []
    for vocab in (parameters["vocab"], 2 * parameters["vocab"]):
        for hidden in (parameters["hidden"], 2 * parameters["hidden"]):
            with tempfile.TemporaryDirectory() as folder:
                trainer = trl.SFTTrainer(
                    model=models.build(
                        "llama", recorder, vocab=vocab, hidden=hidden, dtype=parameters["dtype"], **dimensions
                    ),
                    args=trainers.configure(
                        "SFTConfig",
                        recorder,
                        folder,
                        parameters["dtype"],
                        per_device_train_batch_size=batch,
                        dataset_text_field="text",
                        loss_type="chunked_nll",
                    ),
                    train_dataset=trainers.dataset({"text": [trainers.words(length)] * (2 * batch)}),
                    processing_class=trainers.tokenizer(),
                )
            model = trainer.accelerator.prepare_model(trainer.model)
            model.train()
            trainer.current_gradient_accumulation_steps = 1  # the training loop would have set it
            inputs = {
                name: value.to(recorder.device) if hasattr(value, "to") else value
                for name, value in trainers.collate(trainer, batch)[0].items()
            }

            def forward(trainer: Any = trainer, model: Any = model, inputs: Any = inputs) -> Any:
                return trainer.compute_loss(model, dict(inputs))

            with recorder.phase("forward"):
                peaks.append(recorder.measure(forward)[1])
            del trainer, model, forward
    difference = peaks[3] - peaks[2] - peaks[1] + peaks[0]
    recorder.result("head_bytes", difference)
    recorder.result("head_bytes_per_weight", difference / (parameters["vocab"] * parameters["hidden"]))
