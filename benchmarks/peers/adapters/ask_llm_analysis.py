"""llm-analysis: closed form for Megatron-like training with ZeRO; asked through its Python interface.

Its figure (weights, optimizer states, gradients, activations per GPU) has no context and no allocator in it: allocated. It has
two-matrix MLPs only, so a gated MLP is given as one of 1.5 times its width, which has the same parameters and activations; it has
no adapters, so a frozen base is given as an optimizer and gradients of zero bytes per parameter. It raises when a run does not
fit and gives no figure then, so it is asked on a device without limit and its own sum is held against the real one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.protocol import Inexpressible, Question, answer_all

if TYPE_CHECKING:
    from benchmarks.peers.runs import Run

NAME = "llm-analysis"
STAGES = {"none": "NONE", "ddp": "NONE", "zero1": "STAGE_1", "zero3": "STAGE_3", "fsdp": "STAGE_3"}
STATES = {
    ("bf16", "adamw"): (16, 2, 2),
    ("bf16", "adamw8bit"): (16, 2, 0),
    ("bf16+master", "adamw"): (16, 4, 8),
    ("fp32", "adamw"): (16, 4, 8),
}
"""(weights, optimizer) → bits of a weight, `master_weights_dtype_bytes`, `other_op_bytes`.

It counts the second for gradients and both for the optimizer, so (16, 2, 2) is 2 + 2 + 4 bytes per parameter and (16, 4, 8) is
2 + 4 + 12. It refuses weights of 32 bits: fp32 training (16 bytes per parameter) is given as the nearest it has, mixed precision
(18)."""


def express(run: Run) -> Question | Inexpressible:
    """Put a run into its words."""
    if run.shape is None:
        return Inexpressible(run.inexpressible or "no model")
    if run.offload_optimizer or run.offload_parameters:
        return Inexpressible("no offload")
    if run.adapter and run.adapter.kind == "lora and embeddings":
        return Inexpressible("trains all parameters or none")
    shape = run.shape
    bits, master, other = STATES[run.weights, run.optimizer]
    left_out = list(run.besides)
    if run.adapter:
        master = other = 0
        left_out.append("the adapter")
    if run.weights == "fp32":
        left_out.append("fp32 weights")
    if not shape.tied:
        left_out.append("the output projection (it shares the embedding always)")
    inner = shape.intermediate if shape.family == "gpt2" else shape.intermediate * 3 // 2
    return Question(
        {
            "model": {
                "name": "asked",
                "num_layers": shape.layers,
                "n_head": shape.heads,
                "hidden_dim": shape.hidden,
                "vocab_size": shape.vocab,
                "max_seq_len": run.tokens,
                "num_key_value_heads": shape.kv_heads,
                "ffn_embed_dim": inner,
                "expansion_ratio": inner / shape.hidden,
            },
            "dtype": {
                "weight_bits": 4 if run.quantization else bits,
                "activation_bits": 16,
                "embedding_bits": bits,
            },
            "parallelism": {"tp_size": run.tensor_parallel, "dp_size": run.ranks // run.tensor_parallel},
            "training": {
                "batch_size_per_gpu": run.batch,
                "seq_len": run.tokens,
                "master_weights_dtype_bytes": master,
                "other_op_bytes": other,
                "flash_attn": shape.family != "gpt2",
                "softmax_dropout": shape.family == "gpt2",
                "mlp_gated_linear_units": shape.family != "gpt2",
            },
            "recompute": run.recompute.upper(),
            "zero": STAGES[run.sharding],
        },
        tuple(left_out),
        documented=run.adapter is None,
    )


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask it; runs in its interpreter."""
    import logging  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis  # noqa: PLC0415 (there only)
    from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig  # noqa: PLC0415

    limitless = GPUConfig("limitless", 10**9, 2039, 300, 8e-6, 312)
    analysis = LLMAnalysis(
        ModelConfig(**inputs["model"]),
        limitless,
        DtypeConfig(name="asked", **inputs["dtype"]),
        ParallelismConfig(**inputs["parallelism"]),
        flops_efficiency=0.5,
        hbm_memory_efficiency=0.5,
    )
    summary = analysis.training(
        activation_recomputation=ActivationRecomputation[inputs["recompute"]],
        ds_zero=DSZeRO[inputs["zero"]],
        **inputs["training"],
    )
    return {"allocated": round(summary["(weight+op_state+grad+act)_memory_per_gpu"]), "verdict": None}


if __name__ == "__main__":
    answer_all(answer)
