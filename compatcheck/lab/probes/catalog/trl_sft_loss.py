"""Bytes per logit at the peak of trl's SFTTrainer, in its own ``compute_loss`` and with backward.

A llama of width 8 in ``dtype``, with or without an ``adapter``, goes through ``SFTTrainer.compute_loss``, metrics included,
at two vocabularies and two lengths. ``mixed`` means float32 weights under bfloat16 autocast, whose outputs accelerate casts
to float32. The mixed difference of four peaks grows with tokens x vocabulary alone; divided by the logits that were added it
is bytes per logit. ``of`` says which is judged: ``forward`` or ``step``, forward and backward.

Prediction. A loss over the hidden states in chunks (trl from 1.7: 256 tokens at a time; from 1.15 tiles of 4096 tokens)
never holds anything of the size tokens x vocabulary: 0. Both batches have more tokens than a chunk.

The plain loss is transformers' own: logits 2, their float32 copy 4 and log-probabilities 4 are 10 in forward;
log-probabilities and two gradients of 4 are 12 in backward, when the outputs are gone. Copies that the metrics make come
after the peak of forward and may pass it. What a release with logits takes is reported, not predicted. CUDA: a Triton kernel
in place of the tiles, never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("trl", "transformers", "peft")
SHARES = ("tiny_models", "tiny_trainers")
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "of": "step",
    "loss_type": "unset",
    "dtype": "bfloat16",
    "adapter": "none",
    "batch": 8,
    "length": 640,
    "vocab": 512,
}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"of": "forward", "batch": 4, "length": 1280, "vocab": 768})
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "of": ("forward", "step"),
    "dtype": ("bfloat16", "float32", "mixed"),
    "adapter": ("none", "lora"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {
    "batch": (1,),
    "dtype": ("bfloat16", "float32"),
    "loss_type": ("unset", "nll", "chunked_nll"),
}
METRIC = "bytes_per_logit"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing: no logits of the whole batch."""
    return {"forward_bytes_per_logit": 0, "step_bytes_per_logit": 0, "bytes_per_logit": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: the mixed difference is exact."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    return {
        "model.model_type": "llama",
        "model.vocab_size": parameters["vocab"],
        "model.load_dtype": "float32" if parameters["dtype"] == "mixed" else parameters["dtype"],
        "training.framework": "trl",
        "training.trainer": "sft",
        "training.use_liger_kernel": False,
        "training.gradient_checkpointing": False,
        "training.mixed_precision": "bf16" if parameters["dtype"] == "mixed" else "no",
        "training.sharding": "none",
        "training.peft": None if parameters["adapter"] == "none" else parameters["adapter"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        **({} if parameters["loss_type"] == "unset" else {"training.loss_type": parameters["loss_type"]}),
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss at two vocabularies and two lengths."""
    import tempfile

    from trl import SFTTrainer

    trainers = recorder.load("tiny_trainers")
    batch, length = parameters["batch"], parameters["length"]
    tokenizer = trainers.tokenizer()
    texts = [trainers.words(count) for count in [length] * batch + [2 * length] * batch]

    def build(vocab: int) -> Any:
        options = {} if parameters["loss_type"] == "unset" else {"loss_type": parameters["loss_type"]}
        configuration = trainers.configure(
            "SFTConfig",
            recorder,
            folder,
            parameters["dtype"],
            per_device_train_batch_size=batch,
            dataset_text_field="text",
            **options,
        )
        if options and not hasattr(configuration, "loss_type"):
            recorder.unsupported("needs trl >= 0.22, whose SFTConfig has loss_type")
        trainer = SFTTrainer(
            model=trainers.model(recorder, vocab, 4 * length, parameters["dtype"]),
            args=configuration,
            train_dataset=trainers.dataset({"text": texts}),
            processing_class=tokenizer,
            **trainers.adapt(recorder, parameters["adapter"]),
        )
        batches = [
            {name: value[:, :count] for name, value in part.items()}
            for part, count in zip(trainers.collate(trainer, batch), (length, 2 * length))  # noqa: B905 (Python 3.9)
        ]
        return trainer, batches

    with tempfile.TemporaryDirectory() as folder:
        found = trainers.measure(recorder, build, parameters["vocab"], batch * length)
    for name, value in found.items():
        recorder.result(f"{name}_bytes_per_logit", value)
    recorder.result("bytes_per_logit", found[parameters["of"]])
    recorder.result("logits_bytes", found[parameters["of"]] * parameters["vocab"] * batch * length)
