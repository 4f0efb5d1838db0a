"""accelerate estimate-memory: its column "Training using Adam", one device, everything trained.

The command takes models from the Hub; here its own functions (`calculate_maximum_sizes`, `estimate_training_usage`) get the model
that it would build, with the output projection (it builds without one unless the repository asks otherwise). The figure is the
largest of four parts for a batch of one, without activations: of what torch counts it is nearest to allocated.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.protocol import Inexpressible, Question, answer_all

if TYPE_CHECKING:
    from benchmarks.peers.runs import Run

NAME = "accelerate"


def express(run: Run) -> Question | Inexpressible:
    """Put a run into its words."""
    if run.shape is None:
        return Inexpressible(run.inexpressible or "no model")
    if run.adapter:
        return Inexpressible("trains all parameters")
    if run.ranks > 1 and run.sharding != "ddp":
        return Inexpressible("no sharding")
    shape = run.shape
    left_out = (*run.besides, "batch and sequence")
    if run.optimizer != "adamw":
        left_out = (*left_out, "8-bit states")
    fields: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
    }
    if shape.family == "gpt2":
        fields = {
            "n_embd": shape.hidden,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "vocab_size": shape.vocab,
        }
    return Question(
        {"family": shape.family, "fields": fields, "dtype": "float32" if run.weights == "fp32" else "float16"},
        left_out,
    )


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask it; runs in its interpreter."""
    import torch  # noqa: PLC0415 (there only)
    import transformers  # noqa: PLC0415
    from accelerate import init_empty_weights  # noqa: PLC0415
    from accelerate.commands.estimate import estimate_training_usage  # noqa: PLC0415
    from accelerate.utils import calculate_maximum_sizes  # noqa: PLC0415

    kind = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "gpt2": "GPT2Config"}[inputs["family"]]
    config = getattr(transformers, kind)(**inputs["fields"])
    with init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    total, _ = calculate_maximum_sizes(model)
    usage = estimate_training_usage(total, inputs["dtype"])
    return {"allocated": int(max(usage.values())), "verdict": None}


if __name__ == "__main__":
    answer_all(answer)
