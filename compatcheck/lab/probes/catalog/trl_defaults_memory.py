"""Bytes per token that a layer keeps in a step of trl's SFTTrainer whose configuration says nothing about checkpointing.

``SFTTrainer.train`` runs one step of a tiny llama in bfloat16 of ``layers`` and of twice as many layers. What ``compute_loss``
leaves alive is taken inside the step; the difference, divided by tokens and layers, is what a layer keeps.

Prediction. A checkpointed layer keeps its input, 2 bytes x hidden per token, and computes the rest again. ``checkpointing``
``unset`` leaves the choice to the release, ``on`` asks for it. A release that does not checkpoint unless told to keeps every
activation of the layer, many times that; how much depends on the attention kernel and is reported, not predicted. CUDA: never
run.
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
DEFAULTS: Mapping[str, Any] = {"checkpointing": "unset", "batch": 4, "length": 64, "hidden": 64, "layers": 2}
SIZES = ({"checkpointing": "on"}, {"checkpointing": "on", "batch": 2, "length": 96, "hidden": 128})
CHOICES: Mapping[str, tuple[Any, ...]] = {"checkpointing": ("unset", "on")}
METRIC = "kept_bytes_per_token"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of a layer's input."""
    return {"kept_bytes_per_token": 2 * parameters["hidden"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: only inputs are kept."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run at the smaller size in the vocabulary's names."""
    return {
        "model.model_type": "llama",
        "model.hidden_size": parameters["hidden"],
        "model.num_hidden_layers": parameters["layers"],
        "model.load_dtype": "bfloat16",
        "training.framework": "trl",
        "training.trainer": "sft",
        "training.use_liger_kernel": False,
        "training.mixed_precision": "no",
        "training.micro_batch_size": parameters["batch"],
        "training.sequence_length": parameters["length"],
        **({"training.gradient_checkpointing": True} if parameters["checkpointing"] == "on" else {}),
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train one step at two depths."""
    import dataclasses
    import tempfile

    import trl

    models, trainers = recorder.load("tiny_models"), recorder.load("tiny_trainers")
    batch, length, layers = parameters["batch"], parameters["length"], parameters["layers"]
    field = {field.name: field for field in dataclasses.fields(trl.SFTConfig)}["gradient_checkpointing"]
    kept: list[int] = []

    class Watched(trl.SFTTrainer):
        def compute_loss(self, *arguments: Any, **options: Any) -> Any:
            before = recorder.live_bytes()
            loss = super().compute_loss(*arguments, **options)
            kept.append(recorder.live_bytes() - before)
            return loss

    for depth in (layers, 2 * layers):
        model = models.build("llama", recorder, layers=depth, hidden=parameters["hidden"], positions=4 * length)
        with tempfile.TemporaryDirectory() as folder:
            configuration = trainers.configure(
                "SFTConfig",
                recorder,
                folder,
                per_device_train_batch_size=batch,
                dataset_text_field="text",
                max_steps=1,
                max_length=length,
                max_seq_length=length,
                gradient_checkpointing=True if parameters["checkpointing"] == "on" else field.default,
            )
            trainer = Watched(
                model=model,
                args=configuration,
                train_dataset=trainers.dataset({"text": [trainers.words(2 * length)] * batch}),
                processing_class=trainers.tokenizer(),
            )
            with recorder.phase("step"):
                trainer.train()
        del trainer, model
    if len(kept) != 2:
        recorder.unsupported(f"compute_loss ran {len(kept)} times in two steps")
    recorder.result("kept_bytes_per_token", (kept[1] - kept[0]) / (batch * length * layers))
    recorder.result("kept_bytes", kept[1] - kept[0])
