"""Trace small models on fake tensors, run the same program on real ones, and write both as evidence.

``python tests/unit/memory/traced/measure_traces.py RELEASE…`` (from the root of a checkout, with ``PYTHONPATH=.``) writes
``fixtures/measurements/traced/transformers-RELEASE.jsonl``; COMPATCHECK_TEST_PYTHON names an interpreter with torch. The tracer
counts the fake tensors, the probes' storage accounting the real ones, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import UsageError
from compatcheck.lab.environments.overlay import Base, Overlays, build_base
from compatcheck.lab.evidence.files import write_measurements
from compatcheck.lab.measurement import Measurement, PhaseMemory
from compatcheck.lab.probes.fingerprint import hash_code
from compatcheck.lab.traced.request import Untraceable
from compatcheck.lab.traced.trace import PROGRAM, run_program
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.traced.trace import Runtime

FOLDER = ROOT / "fixtures" / "measurements" / "traced"
ADAPTERS = {"4.45.2": "0.13.2", "4.57.6": "0.18.1", "5.23.0": "0.21.2"}
"""Release of transformers → release of peft."""
TORCH = "2.13.0+cpu"
"""Built where no interpreter with torch is named: the CPU's, never CUDA's."""
DEFAULTS: dict[str, Any] = {
    "architecture": None,
    "dtype": "bfloat16",
    "attn_implementation": None,
    "experts_implementation": None,
    "batch": 2,
    "length": 48,
    "mask": "ones",
    "routing": "balanced",
    "gradient_checkpointing": False,
    "use_reentrant": None,
    "use_cache": False,
    "lora": None,
    "optimizer": "adamw",
    "optimizer_implementation": "foreach",
    "autocast": None,
    "outputs_to_float32": False,
    "outputs_kept": False,
    "micro_batches": 1,
    "steps": 2,
    "fsdp": None,
    "device": None,
}
"""What a configuration has unless it says otherwise; no device: the kernels are those of a CPU, for both."""
SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 160,
    "max_position_embeddings": 128,
}


def _model(model_type: str, **more: Any) -> dict[str, Any]:
    return {"model_type": model_type, **SHAPE, "num_key_value_heads": 2, **more}


LLAMA = _model("llama")
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_inner": 96,
    "vocab_size": 160,
    "n_positions": 128,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
DROPPING = {**GPT2, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
EXPERTS = {"num_experts_per_tok": 2, "num_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 96}
CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {"config": LLAMA, "attn_implementation": "sdpa"},
    {"config": LLAMA, "attn_implementation": "eager"},
    {"config": LLAMA, "dtype": "float32"},
    {"config": LLAMA, "dtype": "float32", "autocast": "bfloat16"},
    {"config": LLAMA, "dtype": "float32", "autocast": "bfloat16", "outputs_to_float32": True},
    {"config": LLAMA, "gradient_checkpointing": True, "use_reentrant": False},
    {"config": LLAMA, "gradient_checkpointing": True, "use_reentrant": True},
    {"config": LLAMA, "gradient_checkpointing": True, "use_reentrant": False, "attn_implementation": "eager"},
    {"config": LLAMA, "optimizer_implementation": "for_loop"},
    {"config": LLAMA, "optimizer_implementation": "fused"},
    {"config": LLAMA, "optimizer": "sgd"},
    {"config": LLAMA, "optimizer": "adafactor"},
    {"config": LLAMA, "micro_batches": 2},
    {"config": LLAMA, "outputs_kept": True},
    {"config": LLAMA, "mask": "none", "use_cache": True},
    {"config": LLAMA, "mask": "padding", "batch": 3},
    {"config": {**LLAMA, "tie_word_embeddings": True}, "length": 96},
    {"config": LLAMA, "lora": {"r": 8, "target_modules": ["q_proj", "v_proj"]}},
    {"config": LLAMA, "lora": {"r": 8, "target_modules": "all-linear", "lora_dropout": 0.1}},
    {"config": LLAMA, "lora": {"r": 4, "target_modules": ["o_proj"], "autocast_adapter_dtype": False}},
    {
        "config": LLAMA,
        "lora": {"r": 8, "target_modules": "all-linear"},
        "gradient_checkpointing": True,
        "use_reentrant": True,
    },
    {"config": LLAMA, "lora": {"r": 8, "target_modules": ["q_proj"], "use_dora": True}},
    {"config": _model("qwen2")},
    {"config": _model("qwen2"), "attn_implementation": "eager", "mask": "padding"},
    {"config": _model("qwen3", head_dim=16)},
    {"config": _model("gemma2", head_dim=16)},
    {"config": _model("gemma3_text", head_dim=16), "gradient_checkpointing": True},
    {"config": _model("mistral")},
    {"config": _model("phi3", pad_token_id=0)},
    {"config": _model("olmo2")},
    {"config": _model("granite")},
    {"config": _model("cohere")},
    {"config": _model("stablelm")},
    {"config": GPT2},
    {"config": DROPPING},
    {"config": {"model_type": "gpt_neox", **SHAPE}},
    {"config": {"model_type": "opt", **SHAPE, "ffn_dim": 96, "word_embed_proj_dim": 64, "dropout": 0.0}},
    {"config": {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 160}},
    {
        "config": {
            "model_type": "falcon",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
            "ffn_hidden_size": 96,
            "vocab_size": 160,
            "alibi": False,
        }
    },
    {"config": {"model_type": "bert", **SHAPE}},
    {"config": {"model_type": "bert", **SHAPE}, "mask": "padding", "gradient_checkpointing": True},
    {
        "config": {
            "model_type": "t5",
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 96,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": 160,
            "dropout_rate": 0.0,
            "decoder_start_token_id": 0,
        }
    },
    {"config": _model("mixtral", **EXPERTS)},
    {"config": _model("mixtral", **EXPERTS), "experts_implementation": "eager", "gradient_checkpointing": True},
    {"config": _model("qwen2_moe", **EXPERTS, shared_expert_intermediate_size=96)},
    {"config": _model("qwen3_moe", **EXPERTS, head_dim=16)},
)


def open_runtime(release: str, base: str | None = None) -> Runtime:
    """Return an interpreter with a release of transformers, and of peft from its time."""
    stated = base or os.environ.get("COMPATCHECK_TEST_PYTHON")
    try:
        found = Base(stated or sys.executable)
    except UsageError:
        if stated:
            raise
        found = build_base(TORCH)
    return Overlays(found).open([f"transformers=={release}", f"peft=={ADAPTERS[release]}"])


def measure(configurations: Sequence[Mapping[str, Any]], runtime: Runtime) -> list[tuple[Measurement, Measurement]]:
    """Return what fake and what real tensors took, for every configuration."""
    both = []
    for backend, accounting in (("fake", "tracker"), ("cpu", "storages")):
        requests = [{**DEFAULTS, **one, "backend": backend, "accounting": accounting} for one in configurations]
        found = run_program(requests, runtime)
        assert not isinstance(found, Untraceable), found.reason
        both.append([_measurement(one, backend, result) for one, result in zip(configurations, found, strict=True)])
    return list(zip(*both, strict=True))  # type: ignore[arg-type]


def _measurement(parameters: Mapping[str, Any], backend: str, result: Mapping[str, Any]) -> Measurement:
    phases = tuple(
        PhaseMemory(
            name=phase["name"],
            peak_allocated_bytes=phase["peak_bytes"],
            live_bytes=phase["live_bytes"],
            peak_operator=phase["operator"],
        )
        for phase in result.get("phases", ())
    )
    notes = result.get("notes", {})
    return Measurement(
        probe="traced",
        probe_hash=hash_code(path.read_text(encoding="utf-8") for path in sorted(PROGRAM.parent.glob("*.py"))),
        backend=backend,
        accounting="storages",
        parameters=dict(parameters),
        versions=result["versions"],
        device=f"{platform.machine()} CPU",
        status=result["status"],
        reason=result["reason"] or (f"decided: {notes['decided']}" if notes.get("decided") else None),
        phases=phases,
        results={"parameters": notes["parameters"]} if "parameters" in notes else {},
        command=f"python tests/unit/memory/traced/measure_traces.py {result['versions']['transformers']}",
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def same(fake: Measurement, real: Measurement) -> bool:
    """Tell whether both took the same bytes and decisions in every phase."""
    return (fake.status, fake.reason, fake.phases, fake.results) == (
        real.status,
        real.reason,
        real.phases,
        real.results,
    )


def main(releases: Sequence[str]) -> None:
    for release in releases:
        pairs = measure(CONFIGURATIONS, open_runtime(release))
        for fake, real in pairs:
            if fake.status != "ok" or not same(fake, real):
                print(json.dumps(fake.parameters), fake.status, fake.reason, real.status, real.reason, sep="\n  ")
                print(*zip(fake.phases, real.phases, strict=False), sep="\n    ")
        equal = [pair for pair in pairs if pair[0].succeeded and same(*pair)]
        print(f"transformers {release}: {len(equal)} of {len(pairs)} equal to the byte")
        write_measurements(
            str(FOLDER / f"transformers-{release}.jsonl"), [one for pair in pairs if pair[0].succeeded for one in pair]
        )


if __name__ == "__main__":
    main(sys.argv[1:])
