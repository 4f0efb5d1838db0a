"""Peak and live bytes of one training step: load, forward, backward, optimizer step.

A model of ``model_type`` is built with the given dimensions, tiny ones by default, and trained for ``steps`` steps; the phases of
the last one count (with ``steps`` 1 the moments of AdamW are made in its step, and are not there before). Full sizes are
parameters like any other: on fake tensors they take neither weights nor a GPU.

Prediction. What outlives a step is the parameters, their gradients, and what the optimizer keeps of the same shape and dtype: two
moments for AdamW, nothing for SGD without momentum. `parameter_copies` is what is live after the last step without inputs,
buffers, frozen parameters and step counters (one float32 for each tensor that AdamW trains), divided by the bytes of the
parameters: 4 or 2. A release that keeps logits, activations or copies of weights beyond the step is above. Peaks depend on how
a release computes, so nothing is predicted about them: they are what `sweep` and `bisect` compare between releases.

On fake tensors the decisions that depend on contents are declared: the mask is what ``mask`` says (``none``, ``ones``, or
``padding``: the last quarter of every sequence but the first), positions count from 0, and tokens go to experts as ``routing``
says (``balanced``: evenly; ``skewed``: all to the first experts; imposed on real tensors too; ``model``: whatever the router
computes, for fake tensors only where no size depends on it). What was decided is in the notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("fake", "cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "model_type": "llama",
    "mask": "ones",
    "attn_implementation": None,
    "experts_implementation": None,
    "routing": "balanced",
    "gradient_checkpointing": False,
    "use_reentrant": False,
    "use_cache": False,
    "optimizer": "adamw",
    "foreach": True,
    "dtype": "bfloat16",
    "batch": 2,
    "sequence": 32,
    "steps": 1,
    "hidden_size": 64,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 160,
    "experts": 4,
    "experts_per_token": 2,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"model_type": "gpt2", "mask": "none", "layers": 3},
    {"optimizer": "sgd", "dtype": "float32", "sequence": 48},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "mask": ("none", "ones", "padding"),
    "attn_implementation": (None, "eager", "sdpa", "flash_attention_2"),
    "experts_implementation": (None, "eager", "batched_mm", "grouped_mm"),
    "routing": ("balanced", "skewed", "model"),
    "optimizer": ("adamw", "sgd"),
    "dtype": ("bfloat16", "float16", "float32"),
}
METRIC = "parameter_copies"

_STATES = {"adamw": 2, "sgd": 0}


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return parameters, gradients and optimizer states, in units of the parameters."""
    return {"parameter_copies": 2 + _STATES[parameters["optimizer"]]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: what is kept is counted exactly."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    chosen = parameters["attn_implementation"]
    return {
        **({} if chosen is None else {"model.attn_implementation": chosen}),
        "model.model_type": parameters["model_type"],
        "model.hidden_size": parameters["hidden_size"],
        "model.num_hidden_layers": parameters["layers"],
        "model.num_attention_heads": parameters["heads"],
        "model.num_key_value_heads": parameters["kv_heads"],
        "model.intermediate_size": parameters["intermediate_size"],
        "model.vocab_size": parameters["vocab_size"],
        "model.use_cache": parameters["use_cache"],
        "training.gradient_checkpointing": parameters["gradient_checkpointing"],
        "training.use_reentrant": parameters["use_reentrant"],
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["sequence"],
        "training.compute_dtype": parameters["dtype"],
        "training.param_dtype": parameters["dtype"],
        "run.attention_mask": parameters["mask"],
    }


def further_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bare loop in one dtype does: labels are passed, and nothing is sharded, packed or replaced."""
    return {
        "program.passes_labels": True,
        "program.skips_unlabelled_logits": False,
        "training.trainer": "causal_lm",
        "training.mixed_precision": "no",
        "training.sharding": "none",
        "training.use_liger_kernel": False,
        "training.padding_free": False,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train; the last step counts."""
    import torch

    models = recorder.load("tiny_models")
    model_type, size, length = parameters["model_type"], parameters["batch"], parameters["sequence"]
    if models.kind(model_type) == "vision":
        recorder.unsupported("images have no tokens to predict")
    with recorder.phase("load"):
        model = models.build(
            model_type,
            recorder,
            implementation=parameters["attn_implementation"],
            experts=parameters["experts_implementation"],
            dtype=parameters["dtype"],
            hidden=parameters["hidden_size"],
            layers=parameters["layers"],
            heads=parameters["heads"],
            kv_heads=parameters["kv_heads"],
            intermediate=parameters["intermediate_size"],
            vocab=parameters["vocab_size"],
            positions=max(512, length),
            expert_count=parameters["experts"],
            experts_per_token=parameters["experts_per_token"],
        )
    if parameters["gradient_checkpointing"]:
        models.checkpoint(model, recorder, reentrant=parameters["use_reentrant"])
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if parameters["optimizer"] == "adamw":
        optimizer: Any = torch.optim.AdamW(weights, lr=1e-5, foreach=parameters["foreach"])
    else:
        optimizer = torch.optim.SGD(weights, lr=1e-5, foreach=parameters["foreach"])

    padding = length // 4 if parameters["mask"] == "padding" else 0
    rows = [[1] * length if row == 0 else [1] * (length - padding) + [0] * padding for row in range(size)]
    before_inputs = recorder.live_bytes()
    inputs = models.batch(model_type, recorder, size=size, length=length, vocab=parameters["vocab_size"], mask="none")
    inputs["labels"] = inputs["input_ids"]
    if parameters["mask"] != "none":
        inputs["attention_mask"] = torch.tensor(rows, device=recorder.device)
        if "decoder_input_ids" in inputs:
            inputs["decoder_attention_mask"] = inputs["attention_mask"]
    if "use_cache" in inputs:
        inputs["use_cache"] = parameters["use_cache"]
    input_bytes = recorder.live_bytes() - before_inputs

    decisions = recorder.decisions(
        mask=None if parameters["mask"] == "none" else rows,
        routing=None if parameters["routing"] == "model" else parameters["routing"],
    )
    with decisions.apply(model):
        for _ in range(parameters["steps"]):
            optimizer.zero_grad()
            with recorder.phase("forward"):
                loss = model(**inputs).loss
            with recorder.phase("backward"):
                loss.backward()
                del loss
            with recorder.phase("step"):
                optimizer.step()
    if decisions.taken:
        recorder.note(f"decided: {decisions.describe()}")
    recorder.note(f"attention: {models.attention_of(model)}")

    trained = sum(weight.nbytes for weight in weights)
    frozen = sum(weight.nbytes for weight in model.parameters() if not weight.requires_grad)
    # Some types keep their sinusoids as a plain attribute.
    plain = [value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in (*model.buffers(), *plain)]
    buffers = sum({storage._cdata: storage.nbytes() for storage in storages}.values())
    counters = 4 * len(weights) if parameters["optimizer"] == "adamw" else 0
    recorder.result("parameters", sum(weight.numel() for weight in model.parameters()))
    recorder.result("buffer_bytes", buffers)
    kept = recorder.live_bytes() - input_bytes - buffers - frozen - counters
    recorder.result("parameter_copies", kept / trained)
