"""vramcalc: peak of one device for Llama-like decoders, full fine-tuning and LoRA; asked through its Python interface.

Its figure is what torch counts (its table was measured as `torch.cuda.max_memory_allocated`): allocated; with its overhead of
0.75 GB it is device use. It takes LoRA on the four projections of attention and no other, 16-bit or float32 weights, and one
device.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.protocol import Inexpressible, Question, answer_all

if TYPE_CHECKING:
    from benchmarks.peers.runs import Run

NAME = "vramcalc"
TARGETS = {"q_proj", "k_proj", "v_proj", "o_proj"}


def express(run: Run) -> Question | Inexpressible:
    """Put a run into its words."""
    if run.shape is None:
        return Inexpressible(run.inexpressible or "no model")
    if run.ranks > 1 or run.offload_optimizer or run.offload_parameters:
        return Inexpressible("one device only, and no offload")
    if run.shape.family == "gpt2":
        return Inexpressible("gated MLPs only")
    if run.quantization:
        return Inexpressible("no quantised weights")
    shape, adapter = run.shape, run.adapter
    if adapter and (adapter.kind != "lora" or set(adapter.targets) != TARGETS):
        return Inexpressible("of adapters only LoRA's on the four projections of attention")
    left_out = list(run.besides)
    if run.optimizer != "adamw":
        left_out.append(f"optimizer {run.optimizer}")
    model = {
        "model_type": shape.family,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
    }
    run_of = {
        "mode": "train",
        "dtype": "bf16",
        "precision": "amp" if run.weights == "fp32" else "pure",
        "batch": run.batch,
        "seq_len": run.tokens,
        "lora_rank": adapter.rank if adapter else None,
        "grad_checkpoint": run.recompute == "full",
        "attn_impl": run.attention,
    }
    return Question({"model": model, "run": run_of}, tuple(left_out))


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask it; runs in its interpreter."""
    from vramcalc.arch import Arch  # noqa: PLC0415 (there only)
    from vramcalc.estimate import EstimateParams, estimate_from_params  # noqa: PLC0415

    arch = Arch.from_config(inputs["model"])
    found = estimate_from_params(EstimateParams(arch=arch, optimizer="adamw", overhead_gb=0.75, **inputs["run"]))
    return {"allocated": found.total, "reserved": None, "device": found.total + found.overhead}


if __name__ == "__main__":
    answer_all(answer)
