"""Bytes per logit at the peak of trl's preference trainers, in their own ``compute_loss`` and with backward.

A llama of width 8 in ``dtype`` goes through ``compute_loss`` of ``trainer``, metrics included, with ``pairs`` of chosen and
rejected; KTO gets as many single sequences. DPO and KTO have a reference model like it; with an ``adapter`` it is the model
without it. ``mixed`` means float32 weights under bfloat16 autocast, whose outputs accelerate casts to float32. Measured at
two vocabularies and two lengths of the ``growing`` part, ``completion`` or ``prompt``; the mixed difference of four peaks,
divided by the logits that were added (two sequences a pair), is bytes per logit. ``of`` says which is judged: ``forward`` or
``step``, forward and backward.

Prediction. A loss over the hidden states in tiles (trl from 1.15, 4096 tokens at a time) never holds anything of the size
tokens x vocabulary: 0, whichever part grows. Both batches have more tokens than a tile. Where logits are built those of the
prompt are never needed, but cost the same unless the trainer asks for the completion's alone.

Releases with logits peak in the metrics, at the copy of the chosen half of the logits, and hold beside it, for 16-bit logits
of 2 bytes, up to 0.28 the logits and the log-probabilities that backward needs: 2 + 2 + 1 = 5. From 0.29 on a contiguous
copy of the shifted logits, and the reference's logits with such a copy of their own, all still named: 5 + 2 + 2 + 2 = 11.
1.6 makes no such copies, but the reference's logits stay and the entropy flattens the shifted logits, a copy: 2 + 2 + 2 + 2
= 8, the new highest point; from 1.14 without that copy: 2 + 2 + 2 + 1 = 7. With float32 logits the backward of
``logsumexp``, 12, hides all but the second: 18. Those are what the verdict calls bad; docs/sweeps.md has the other trainers.
Float32 logits are counted by the allocator, since storages are counted under a mode, which takes the gradient of ``gather`` out
of place; 16-bit ones by storages, since a CPU makes float32 copies of them that no GPU makes. CUDA: a Triton kernel in place of
the tiles, never run.
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
    "trainer": "dpo",
    "growing": "completion",
    "dtype": "bfloat16",
    "adapter": "none",
    "pairs": 8,
    "prompt": 64,
    "completion": 256,
    "vocab": 512,
    "kernels": "own",
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"of": "forward", "growing": "prompt", "prompt": 256, "completion": 64, "vocab": 768},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "of": ("forward", "step"),
    "trainer": ("dpo", "kto", "orpo", "cpo"),
    "growing": ("prompt", "completion"),
    "dtype": ("bfloat16", "float32", "mixed"),
    "adapter": ("none", "lora"),
    "kernels": ("own", "launched"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {"pairs": (1,), "dtype": ("bfloat16", "float32")}
METRIC = "bytes_per_logit"


def counted(parameters: Mapping[str, Any]) -> str:
    """Count float32 logits without a mode, 16-bit ones without the copies that only a CPU makes."""
    return "storages" if parameters["dtype"] == "bfloat16" else "allocator"


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
        "training.trainer": parameters["trainer"],
        "training.use_liger_kernel": False,
        "training.gradient_checkpointing": False,
        "training.mixed_precision": "bf16" if parameters["dtype"] == "mixed" else "no",
        "training.sharding": "none",
        "training.peft": None if parameters["adapter"] == "none" else parameters["adapter"],
        "training.reference_model": parameters["trainer"] in ("dpo", "kto"),
        "training.precompute_ref_log_probs": False,
        "training.micro_batch_size": (2 if parameters["trainer"] == "kto" else 1) * parameters["pairs"],
        "training.max_prompt_length": parameters["prompt"],
        "training.max_response_length": parameters["completion"],
        # Of the sequence, the part that the logits are counted over.
        "training.sequence_length": parameters[parameters["growing"]],
    }


def on_a_gpu(versions: Mapping[str, str]) -> str | None:
    """Say what trl 1.14 does on a GPU alone."""
    return "a Triton kernel scores the logits there" if versions.get("trl", "").startswith("1.14.") else None


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss at two vocabularies and two lengths."""
    import copy
    import tempfile

    trainers = recorder.load("tiny_trainers")
    if parameters["kernels"] == "launched":
        trainers.launch_kernels(recorder)
    name, pairs, growing = parameters["trainer"], parameters["pairs"], parameters["growing"]
    rows = 2 * pairs if name == "kto" else pairs
    tokenizer = trainers.tokenizer()
    prompts, completions = (
        [parameters[part]] * rows + [(2 if part == growing else 1) * parameters[part]] * rows
        for part in ("prompt", "completion")
    )
    # A token that ends the completion is added to it.
    answers = [" " + trainers.words(count - 1) for count in completions]
    given = (
        {"completion": answers, "label": [index % 2 == 0 for index in range(2 * rows)]}
        if name == "kto"
        else {"chosen": answers, "rejected": answers}
    )
    data = {"prompt": [trainers.words(count) for count in prompts], **given}

    def build(vocab: int) -> Any:
        positions = 4 * (parameters["prompt"] + parameters["completion"])
        model = trainers.model(recorder, vocab, positions, parameters["dtype"])
        adapter = trainers.adapt(recorder, parameters["adapter"])
        # The model without its adapter is the reference; ORPO and CPO have none.
        reference = {} if adapter or name in ("orpo", "cpo") else {"ref_model": copy.deepcopy(model)}
        configuration = trainers.configure(
            f"{name.upper()}Config", recorder, folder, parameters["dtype"], per_device_train_batch_size=rows
        )
        trainer = trainers.find(f"{name.upper()}Trainer", recorder)(
            model=model,
            args=configuration,
            train_dataset=trainers.dataset(data),
            processing_class=tokenizer,
            **reference,
            **adapter,
        )
        return trainer, trainers.collate(trainer, rows)

    with tempfile.TemporaryDirectory() as folder:
        found = trainers.measure(recorder, build, parameters["vocab"], 2 * pairs * parameters[growing])
    for result, value in found.items():
        recorder.result(f"{result}_bytes_per_logit", value)
    recorder.result("bytes_per_logit", found[parameters["of"]])
    recorder.result("logits_bytes", found[parameters["of"]] * parameters["vocab"] * 2 * pairs * parameters[growing])
