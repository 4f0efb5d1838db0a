"""fitcheck-llm: peak of one device for LoRA, QLoRA and full fine-tuning; asked through its Python interface.

Its figure is device use: five tensor formulas and an overhead of 500 MiB plus 5 % (its profile for every card but a T4). Without
the 500 MiB it is reserved, without the overhead allocated. The interface is given the fields that it would read from a model's
`config.json`, and the parameter count that it would take from the Hub.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.protocol import Inexpressible, Question, answer_all

if TYPE_CHECKING:
    from benchmarks.peers.runs import Run

NAME = "fitcheck-llm"
GPUS = {
    ("A100-SXM4", 80): "a100-80", ("A100", 80): "a100-80", ("L40S", 48): "l40s", ("A6000", 48): "a6000", ("4090", 24): "4090",
}  # fmt: skip
"""Card and its GiB → its name here; other cards are given by their memory."""


def express(run: Run) -> Question | Inexpressible:
    """Put a run into its words."""
    if run.shape is None:
        return Inexpressible(run.inexpressible or "no model")
    if run.ranks > 1:
        return Inexpressible("one device only")
    if run.shape.family == "gpt2":
        return Inexpressible("gated MLPs only")
    shape, adapter = run.shape, run.adapter
    if adapter and adapter.kind != "lora":
        return Inexpressible("of adapters only LoRA's")
    known = GPUS.get((run.gpu, run.device_bytes // 2**30))
    training: dict[str, Any] = {
        "precision": "fp16" if run.quantization == "gptq4" else "bf16",
        "quantization": "nf4" if run.quantization else "none",
        "double_quant": run.quantization == "nf4-double",
        "optimizer": "adam8bit" if run.optimizer == "adamw8bit" else "adamw",
        "optimizer_dtype": "bf16" if run.weights == "bf16" and not adapter else "fp32",
        "batch_size": run.batch,
        "seq_len": run.tokens,
        "lora_rank": adapter.rank if adapter else None,
        "grad_checkpoint": run.recompute == "full",
        "flash_attn": True,
    }
    if adapter:
        training["lora_targets"] = list(adapter.targets)
    left_out = list(run.besides)
    if not adapter and run.weights == "bf16":
        left_out.append("training without an fp32 copy")
    return Question(
        {
            "model": {
                "num_params": shape.parameters,
                "hidden_size": shape.hidden,
                "num_layers": shape.layers,
                "num_attention_heads": shape.heads,
                "num_kv_heads": shape.kv_heads,
                "intermediate_size": shape.intermediate,
                "vocab_size": shape.vocab,
                "head_dim": shape.head_dim,
                "tie_word_embeddings": shape.tied,
            },
            "training": training,
            "gpu": known,
            "vram_mib": None if known else run.device_bytes // 2**20,
        },
        tuple(left_out),
    )


VERDICTS = {"safe": "fits", "uncertain": "marginal", "does_not_fit": "does_not_fit"}


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask it; runs in its interpreter."""
    from fitcheck.config_parser import ModelConfig  # noqa: PLC0415 (there only)
    from fitcheck.estimator import TrainingConfig, estimate  # noqa: PLC0415
    from fitcheck.gpu_db import get_gpu, gpu_key_for  # noqa: PLC0415
    from fitcheck.overhead_db import get_overhead_profile  # noqa: PLC0415

    training = TrainingConfig(**inputs["training"])
    gpu = get_gpu(inputs["gpu"], inputs["vram_mib"])
    report = estimate(ModelConfig(name="asked", **inputs["model"]), training, gpu)
    profile = get_overhead_profile(gpu_key_for(gpu), training.flash_attn, training.quantization)
    mib = 2**20
    return {
        "device": round(report.total_mib * mib),
        "reserved": round((report.total_mib - profile.base_context_mib) * mib),
        "allocated": round((report.total_mib - report.overhead_mib) * mib),
        "verdict": VERDICTS[report.verdict],
    }


if __name__ == "__main__":
    answer_all(answer)
