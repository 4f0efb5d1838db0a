"""Bytes per logit at the peak of trl's GRPOTrainer and RLOOTrainer, in their own ``compute_loss`` and with backward.

A llama of width 8 in ``dtype``, with or without an ``adapter``, goes through ``compute_loss`` of ``trainer``, entropy and
other metrics included, on ``batch`` completions that are given, not generated, without a KL term. ``mixed`` means float32
weights under bfloat16 autocast, whose outputs accelerate casts to float32. Measured at two vocabularies and two lengths of
the ``growing`` part, ``completion`` or ``prompt``; the mixed difference of four peaks, divided by the logits that were
added, is bytes per logit. ``of`` says which is judged: ``forward`` or ``step``, forward and backward.

Prediction. A loss over the hidden states in tiles (trl from 1.15, 4096 tokens at a time) never holds anything of the size
tokens x vocabulary: 0, whichever part grows. Both batches have more tokens than a tile. Where logits are built those of the
prompt are left out (``logits_to_keep``), so that a growing prompt costs 0 there too.

Releases with logits hold, for 16-bit logits of 2 bytes, up to 0.29 the logits divided by the temperature and the
log-probabilities: 2 + 2 = 4. From 1.0 on the division is in place, on a slice: the entropy has to flatten it into a copy, 2
+ 2 + 2 = 6 in forward, and autograd clones the gradient for the slice and its base, 8 in backward. From 1.10 it is a copy
again, but the outputs stay named: 2 + 2 + 2 = 6. With float32 logits the backward of ``logsumexp`` is highest, 12, of one
sequence 16, and from 1.0 to 1.9 16 whatever their number. Those are what the verdict calls bad. GRPO before 0.15 and RLOO
before 0.22 generate inside their loss: unsupported. Float32 logits are counted by the allocator, 16-bit ones by storages, for the
reasons that trl_dpo_loss gives. CUDA: a Triton kernel in place of the tiles, never run.
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
    "trainer": "grpo",
    "growing": "completion",
    "dtype": "bfloat16",
    "adapter": "none",
    "batch": 8,
    "prompt": 64,
    "completion": 640,
    "vocab": 512,
    "kernels": "own",
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"of": "forward", "growing": "prompt", "prompt": 640, "completion": 64, "vocab": 768},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "of": ("forward", "step"),
    "trainer": ("grpo", "rloo"),
    "growing": ("prompt", "completion"),
    "dtype": ("bfloat16", "float32", "mixed"),
    "adapter": ("none", "lora"),
    "kernels": ("own", "launched"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {"batch": (2,), "dtype": ("bfloat16", "float32")}
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
        "training.kl_coefficient": 0.0,
        "training.micro_batch_size": parameters["batch"],
        "training.num_generations": max(2, parameters["batch"]),
        "training.max_prompt_length": parameters["prompt"],
        "training.max_response_length": parameters["completion"],
        "training.sequence_length": parameters["prompt"] + parameters["completion"],
    }


def on_a_gpu(versions: Mapping[str, str]) -> str | None:
    """Say what trl 1.14 does on a GPU alone."""
    return "a Triton kernel scores the logits there" if versions.get("trl", "").startswith("1.14.") else None


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Take the loss at two vocabularies and two lengths."""
    import tempfile
    from importlib.metadata import version

    import torch

    trainers = recorder.load("tiny_trainers")
    if parameters["kernels"] == "launched":
        trainers.launch_kernels(recorder)
    name = parameters["trainer"]
    first = {"grpo": (0, 15), "rloo": (0, 22)}[name]
    # trl 0.22.0 itself calls its release "unknown".
    if tuple(int(part) for part in version("trl").split(".")[:2]) < first:
        recorder.unsupported(f"{name} of trl before {first[0]}.{first[1]} generates inside its loss")
    batch, growing = parameters["batch"], parameters["growing"]
    tokenizer = trainers.tokenizer()

    def make(vocab: int, factor: int) -> dict[str, Any]:
        prompt, completion = (
            (factor if part == growing else 1) * parameters[part] for part in ("prompt", "completion")
        )
        scores = torch.zeros(batch, completion)
        return {
            "prompt_ids": torch.randint(4, vocab, (batch, prompt)),
            "prompt_mask": torch.ones(batch, prompt, dtype=torch.long),
            "completion_ids": torch.randint(4, vocab, (batch, completion)),
            "completion_mask": torch.ones(batch, completion, dtype=torch.long),
            "advantages": torch.linspace(-1, 1, batch),
            "old_per_token_logps": None,
            "old_logps": torch.zeros(batch),
            "ref_per_token_logps": scores,
            "num_items_in_batch": torch.tensor(float(batch * completion)),
        }

    def build(vocab: int) -> Any:
        # A group has two completions at least; the batches, which are given, may have one.
        group = max(2, batch)
        configuration = trainers.configure(
            f"{name.upper()}Config",
            recorder,
            folder,
            parameters["dtype"],
            per_device_train_batch_size=group,
            num_generations=group,
            beta=0.0,
        )
        trainer = trainers.find(f"{name.upper()}Trainer", recorder)(
            model=trainers.model(
                recorder, vocab, 4 * (parameters["prompt"] + parameters["completion"]), parameters["dtype"]
            ),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=configuration,
            train_dataset=trainers.dataset({"prompt": [trainers.words(4)] * group}),
            processing_class=tokenizer,
            **trainers.adapt(recorder, parameters["adapter"]),
        )
        return trainer, [make(vocab, 1), make(vocab, 2)]

    with tempfile.TemporaryDirectory() as folder:
        found = trainers.measure(recorder, build, parameters["vocab"], batch * parameters[growing])
    for result, value in found.items():
        recorder.result(f"{result}_bytes_per_logit", value)
    recorder.result("bytes_per_logit", found[parameters["of"]])
    recorder.result("logits_bytes", found[parameters["of"]] * parameters["vocab"] * batch * parameters[growing])
