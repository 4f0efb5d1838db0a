"""What merging an adapter takes beside the weights, and what a second adapter copies.

``action`` ``merge``: ``layers`` square linear layers of one size have LoRA adapters, and the adapter is merged. ``action``
``add``: a model with an embedding and a head of its own gets an adapter that trains the embedding in full
(``modules_to_save``), then a second one whose ``saved`` is ``other``, the head, or ``none``.

Prediction, b bytes of ``dtype``. Merging makes the product of the two low-rank matrices and then the same scaled, each as
large as a weight, b x hidden x hidden: two at once. The product is gone when the update is added, so that a sum beside the
update, which releases that add out of place make, is no more than these two. `excess_bytes`, the peak above what was live
before less two matrices, is 0 either way. A second adapter copies what it trains: b x vocabulary x hidden for the head,
nothing without. `excess_bytes`, what adding leaves less that and less its low-rank matrices, is 0. A release that copies the
first adapter's modules for each copies the embedding, too.

Source: src/peft/tuners/lora/layer.py merge(), src/peft/utils/other.py _set_trainable().
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("peft", "transformers")
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "action": "merge",
    "saved": "other",
    "dtype": "float32",
    "layers": 2,
    "hidden": 128,
    "vocab": 512,
    "rank": 4,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"hidden": 96, "layers": 3},
    {"action": "add"},
    {"action": "add", "vocab": 768, "dtype": "bfloat16"},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "action": ("merge", "add"),
    "saved": ("other", "none"),
    "dtype": ("float32", "bfloat16"),
}
METRIC = "excess_bytes"


def _bytes(parameters: Mapping[str, Any]) -> int:
    return 4 if parameters["dtype"] == "float32" else 2


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing beside update and product, or what the second adapter trains."""
    return {"excess_bytes": 0}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: all tensors are known."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    merges = parameters["action"] == "merge"
    return {
        "model.load_dtype": parameters["dtype"],
        "model.quantization": None,
        "model.hidden_size": parameters["hidden"],
        "model.intermediate_size": parameters["hidden"],
        "model.fused_gate_up": False,
        "model.num_hidden_layers": parameters["layers"],
        "model.vocab_size": parameters["vocab"],
        "model.embedding_parameters": parameters["vocab"] * parameters["hidden"],
        "training.peft": "lora",
        "training.lora_rank": parameters["rank"],
        "run.merges_adapter": merges,
        "run.multiple_adapters": not merges,
        **({} if merges else {"training.lora_modules_to_save": ["embed_tokens"]}),
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Merge, or add an adapter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch import nn

    hidden, dtype = parameters["hidden"], getattr(torch, parameters["dtype"])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(parameters["vocab"], hidden)
            self.layers = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(parameters["layers"]))
            self.lm_head = nn.Linear(hidden, parameters["vocab"], bias=False)

        def forward(self, tokens: Any) -> Any:
            states = self.embed_tokens(tokens)
            for layer in self.layers:
                states = layer(states)
            return self.lm_head(states)

    def configure(saved: list[str] | None) -> LoraConfig:
        targets = [f"layers.{index}" for index in range(parameters["layers"])]
        return LoraConfig(r=parameters["rank"], target_modules=targets, modules_to_save=saved)

    merges = parameters["action"] == "merge"
    with recorder.phase("load"):
        model = get_peft_model(Model().to(recorder.device, dtype), configure(None if merges else ["embed_tokens"]))
    if merges:
        with recorder.phase("merge"):
            _, peak, _ = recorder.measure(model.merge_adapter)
        recorder.result("peak_bytes", peak)
        recorder.result("excess_bytes", peak - 2 * _bytes(parameters) * hidden**2)
        return
    second = configure(["lm_head"] if parameters["saved"] == "other" else None)
    with recorder.phase("add"):
        _, _, left = recorder.measure(lambda: model.add_adapter("second", second))
    matrices = sum(weight.nbytes for name, weight in model.named_parameters() if "second" in name and "lora_" in name)
    trained = _bytes(parameters) * parameters["vocab"] * hidden if parameters["saved"] == "other" else 0
    recorder.result("added_bytes", left)
    recorder.result("excess_bytes", left - matrices - trained)
