"""Trace full-size steps and write their components, for the comparison with the closed form.

``PYTHONPATH=. python tests/unit/memory/traced/measure_shapes.py`` writes ``fixtures/estimates/traced-components.json``;
COMPATCHECK_TEST_PYTHON names an interpreter with torch.
"""

from __future__ import annotations

import json
from typing import Any

from compatcheck.frameworks.model.configuration import read as read_model
from compatcheck.lab.traced.request import Untraceable
from compatcheck.lab.traced.trace import trace
from tests import ROOT

FILE = ROOT / "fixtures" / "estimates" / "traced-components.json"
RELEASE = "5.23.0"
BFLOAT16 = {"torch_dtype": "bfloat16"}


def _decoder(model_type: str, *sizes: int, **more: Any) -> dict[str, Any]:
    names = (
        *("hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "num_key_value_heads", "vocab_size"),
    )
    values = dict(zip(names, sizes, strict=True))
    return {"model_type": model_type, **values, "max_position_embeddings": 8192, **BFLOAT16, **more}


LLAMA_7B = _decoder("llama", 4096, 11008, 32, 32, 32, 32000)
LLAMA_1B = _decoder("llama", 2048, 8192, 16, 32, 8, 128256, head_dim=64, tie_word_embeddings=True)
QWEN_7B = _decoder("qwen2", 3584, 18944, 28, 28, 4, 152064)
QWEN_500M = _decoder("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True)
QWEN3_4B = _decoder("qwen3", 2560, 9728, 36, 32, 8, 151936, head_dim=128, tie_word_embeddings=True)
MISTRAL_7B = _decoder("mistral", 4096, 14336, 32, 32, 8, 32000, sliding_window=None)
GEMMA2_2B = _decoder("gemma2", 2304, 9216, 26, 8, 4, 256000, head_dim=256)
PHI3_MINI = _decoder("phi3", 3072, 8192, 32, 32, 32, 32064, pad_token_id=32000)
COMMON = {
    "run.attention_mask": "none",
    "model.use_cache": False,
    "training.gradient_accumulation_steps": 1,
    "training.param_dtype": "bfloat16",
    "training.mixed_precision": "no",
    "training.optimizer": "adamw",
    "training.optimizer_implementation": "foreach",
    "hardware.world_size": 1,
    "hardware.compute_capability": 8.0,
}
LORA = {
    "training.peft": "lora",
    "training.lora_rank": 16,
    "training.lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
}


def _run(
    config: dict[str, Any], batch: int, length: int, *, checkpointing: bool = False, **more: Any
) -> dict[str, Any]:
    return {
        "config": config,
        "facts": {
            **COMMON,
            "training.micro_batch_size": batch,
            "training.sequence_length": length,
            "training.gradient_checkpointing": checkpointing,
            "training.use_reentrant": False,
            "model.attn_implementation": "sdpa",
            **more,
        },
    }


RUNS = (
    _run(LLAMA_7B, 1, 4096),
    _run(LLAMA_7B, 1, 2048, **{"model.attn_implementation": "eager"}),
    _run(LLAMA_7B, 2, 4096, checkpointing=True),
    _run(LLAMA_7B, 1, 4096, checkpointing=True, **LORA),
    _run(LLAMA_1B, 4, 2048),
    _run(QWEN_7B, 1, 8192, checkpointing=True),
    _run(QWEN_500M, 4, 2048),
    _run(QWEN3_4B, 2, 4096, checkpointing=True),
    _run(MISTRAL_7B, 1, 8192),
    _run(GEMMA2_2B, 1, 2048, **{"model.attn_implementation": "eager"}),
    _run(PHI3_MINI, 4, 2048),
)


def complete(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run's facts, with those that its model's configuration states."""
    stated = {
        one.fact: one.value for one in read_model(run["config"], "config.json").documents[0].statements if one.fact
    }
    return {**stated, **run["facts"]}


def main() -> None:
    from tests.unit.lab.traced.measure_traces import open_runtime

    runtime = open_runtime(RELEASE)
    rows = []
    for run in RUNS:
        found = trace(complete(run), config=run["config"], python=runtime)
        if isinstance(found, Untraceable):
            raise SystemExit(found.reason)
        phases: dict[str, dict[str, int]] = {}
        for phase in found.estimate.phases:
            kinds = phases.setdefault(phase.name, {})
            for part in phase.components:
                if part.kind != "context":
                    name = "rounding" if part.name == "rounding of blocks" else part.kind
                    kinds[name] = kinds.get(name, 0) + part.size.expected
        rows.append({"facts": run["facts"], "config": run["config"], "versions": found.versions, "phases": phases})
        print(run["config"]["model_type"], run["facts"]["training.sequence_length"])
    FILE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
