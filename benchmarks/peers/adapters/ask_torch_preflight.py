"""torch-preflight: peak of one device from a script or flags; asked through its Python interface.

Its figure is device use: states, activations, 10.5 % fragmentation and a CUDA context of 135 MiB, each named, so that reserved
(without the context) and allocated (without fragmentation too) can be told. The interface takes what the command line has no
flag for: dimensions of any model, a frozen fraction (LoRA), ZeRO-Offload. Parameter counts are given, not left to its formula.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.protocol import Inexpressible, Question, answer_all

if TYPE_CHECKING:
    from benchmarks.peers.runs import Run

NAME = "torch-preflight"
SHARDING = {"none": "none", "ddp": "ddp", "zero1": "zero-1", "zero3": "zero-3", "fsdp": "zero-3"}
PRECISION = {"bf16": "pure-bf16", "bf16+master": "fp16-master", "fp32": "amp"}
"""fp32 weights are computed in bf16 by all runs that have them: its autocast."""
GPUS = {
    ("A100-SXM4", 80): "a100-80gb", ("A100", 80): "a100-80gb", ("A800", 80): "a100-80gb", ("A100", 40): "a100-40gb",
    ("H100", 80): "h100-80gb", ("L40S", 48): "l40s", ("A6000", 48): "a6000", ("4090", 24): "rtx4090", ("V100", 32): "v100-32gb",
}  # fmt: skip
"""Card and its GiB → its name here; other cards are given by their memory."""


def express(run: Run) -> Question | Inexpressible:
    """Put a run into its words."""
    if run.shape is None:
        return Inexpressible(run.inexpressible or "no model")
    if run.quantization:
        return Inexpressible("no 4-bit weights")
    if run.tensor_parallel > 1:
        return Inexpressible("no tensor parallelism")
    left_out = list(run.besides)
    if run.recompute == "selective":
        left_out.append("selective checkpointing (asked without)")
    if run.weights == "bf16" and run.adapter is None and run.optimizer == "adamw":
        left_out.append("AdamW states in bf16")
    shape, adapter = run.shape, run.adapter
    added, trainable = (adapter.added, adapter.trainable) if adapter else (0, shape.parameters)
    total = shape.parameters + added
    known = GPUS.get((run.gpu, run.device_bytes // 2**30))
    return Question(
        {
            "shape": {
                "layers": shape.layers,
                "hidden": shape.hidden,
                "heads": shape.heads,
                "kv_heads": shape.kv_heads,
                "intermediate": shape.intermediate,
                "vocab": shape.vocab,
                "tied_embeddings": shape.tied,
                "gated_mlp": shape.family != "gpt2",
                "learned_positions": shape.family == "gpt2",
                "uses_dropout": shape.family == "gpt2",
                "has_lm_head": True,
            },
            "parameters": total,
            "config": {
                "batch_size": run.batch,
                "seq_len": run.tokens,
                "precision": PRECISION[run.weights],
                "optimizer": "adamw-8bit" if run.optimizer == "adamw8bit" else "adamw",
                "gradient_checkpointing": run.recompute == "full",
                "flash_attention": shape.family != "gpt2",
                "world_size": run.ranks,
                "sharding": SHARDING[run.sharding],
                "offload_optimizer": run.offload_optimizer,
                "offload_params": run.offload_parameters,
                "frozen_fraction": 1 - trainable / total if adapter else 0.0,
            },
            "gpu": known,
            "gpu_memory": None if known else run.device_bytes,
        },
        tuple(left_out),
        documented=adapter is None,
    )


VERDICTS = {"FITS": "fits", "TIGHT": "marginal", "LIKELY_OOM": "does_not_fit", "CERTAIN_OOM": "does_not_fit"}


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask it; runs in its interpreter."""
    from torch_preflight.vram import (  # noqa: PLC0415 (there only)
        Confidence,
        ModelProfile,
        OptimizerKind,
        PrecisionMode,
        RunConfig,
        Sharding,
        TransformerShape,
        estimate_config,
    )

    config = inputs["config"]
    run = RunConfig(
        **{
            **config,
            "precision": PrecisionMode(config["precision"]),
            "optimizer": OptimizerKind(config["optimizer"]),
            "sharding": Sharding(config["sharding"]),
        }
    )
    # HIGH, as for the models of its own table: dimensions and count are exact here too.
    profile = ModelProfile(
        name="asked",
        param_count=inputs["parameters"],
        trainable_params=inputs["parameters"],
        source="formula",
        confidence=Confidence.HIGH,
        shape=TransformerShape(**inputs["shape"]),
    )
    report = estimate_config(profile, run, gpu=inputs["gpu"], gpu_memory=inputs["gpu_memory"], with_remediations=False)
    parts = report.breakdown
    return {
        "device": parts.total,
        "reserved": parts.total - parts.cuda_context,
        "allocated": parts.total - parts.cuda_context - parts.fragmentation,
        "verdict": VERDICTS.get(report.band.value),
    }


if __name__ == "__main__":
    answer_all(answer)
