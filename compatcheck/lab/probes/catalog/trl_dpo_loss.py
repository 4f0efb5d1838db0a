"""Bytes per logit at the peak of trl's DPOTrainer, in its own ``compute_loss`` and with backward.

A llama of width 8 in ``dtype`` and a reference model like it go through ``DPOTrainer.compute_loss``, metrics included, with
``pairs`` of chosen and rejected. Measured at two vocabularies and two lengths of the ``growing`` part, ``completion`` or
``prompt``; the mixed difference of four peaks, divided by the logits that were added (two sequences a pair), is bytes per
logit. ``of`` says which is judged: ``forward`` or ``step``, forward and backward.

Prediction. A loss over the hidden states in tiles (trl from 1.15, 4096 tokens at a time) never holds anything of the size
tokens x vocabulary: 0, whichever part grows. Both batches have more tokens than a tile. Where logits are built those of the
prompt are never needed, but cost the same unless the trainer asks for the completion's alone.

Releases with logits peak in the metrics, at the copy of the chosen half of the logits, and hold beside it, for 16-bit logits of
2 bytes, up to 0.28 the logits and the log-probabilities that backward needs: 2 + 2 + 1 = 5. From 0.29 on a contiguous copy of
the shifted logits, and the reference's logits with such a copy of their own, all still named: 5 + 2 + 2 + 2 = 11. 1.6 makes no
such copies, but the reference's logits stay and the entropy flattens the shifted logits, a copy: 2 + 2 + 2 + 2 = 8, the new
highest point; from 1.14 without that copy: 2 + 2 + 2 + 1 = 7. With float32 logits the backward of ``logsumexp``, 16, hides all
but the second: 18. Those are what the verdict calls bad. CUDA: a Triton kernel in place of the tiles, never run.
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
DEFAULTS: Mapping[str, Any] = {
    "of": "step",
    "growing": "completion",
    "dtype": "bfloat16",
    "pairs": 8,
    "prompt": 64,
    "completion": 256,
    "vocab": 512,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"of": "forward", "growing": "prompt", "prompt": 256, "completion": 64, "vocab": 768},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "of": ("forward", "step"),
    "growing": ("prompt", "completion"),
    "dtype": ("bfloat16", "float32"),
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
        "model.load_dtype": parameters["dtype"],
        "training.framework": "trl",
        "training.trainer": "dpo",
        "training.use_liger_kernel": False,
        "training.gradient_checkpointing": False,
        "training.mixed_precision": "no",
        "training.reference_model": True,
        "training.precompute_ref_log_probs": False,
        "training.micro_batch_size": parameters["pairs"],
        "training.max_prompt_length": parameters["prompt"],
        "training.max_response_length": parameters["completion"],
        # Of the sequence, the part that the logits are counted over.
        "training.sequence_length": parameters[parameters["growing"]],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss at two vocabularies and two lengths."""
    import copy
    import tempfile

    from trl import DPOTrainer

    trainers = recorder.load("tiny_trainers")
    pairs, growing = parameters["pairs"], parameters["growing"]
    tokenizer = trainers.tokenizer()
    prompts, completions = (
        [parameters[part]] * pairs + [(2 if part == growing else 1) * parameters[part]] * pairs
        for part in ("prompt", "completion")
    )
    # A token that ends the completion is added to it.
    answers = [" " + trainers.words(count - 1) for count in completions]
    data = {"prompt": [trainers.words(count) for count in prompts], "chosen": answers, "rejected": answers}

    def build(vocab: int) -> Any:
        model = trainers.model(
            recorder, vocab, 4 * (parameters["prompt"] + parameters["completion"]), parameters["dtype"]
        )
        trainer = DPOTrainer(
            model=model,
            ref_model=copy.deepcopy(model),
            args=trainers.configure("DPOConfig", recorder, folder, per_device_train_batch_size=pairs),
            train_dataset=trainers.dataset(data),
            processing_class=tokenizer,
        )
        return trainer, trainers.collate(trainer, pairs)

    with tempfile.TemporaryDirectory() as folder:
        found = trainers.measure(recorder, build, parameters["vocab"], 2 * pairs * parameters[growing])
    for name, value in found.items():
        recorder.result(f"{name}_bytes_per_logit", value)
    recorder.result("bytes_per_logit", found[parameters["of"]])
    recorder.result("logits_bytes", found[parameters["of"]] * parameters["vocab"] * 2 * pairs * parameters[growing])
