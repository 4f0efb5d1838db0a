"""Runs whose peak a script measured (`fixtures/estimates/peaks`), in the words of `runs.py`, and our own column of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.measured_peaks import COUNTS, Measured, estimate_measured, read_peaks
from benchmarks.peers.runs import Adapter, Peak, Run, Shape, count_lora

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FAMILIES = {"llama": "llama", "mistral": "llama", "ministral": "llama", "qwen2": "qwen2"}
"""Model type → the family whose blocks it has; peers know no others."""
KINDS = {"allocated": "allocated", "reserved": "reserved", "device_use": "device"}


def read_measured() -> Iterator[tuple[Run, Measured]]:
    """Yield the runs with a peak whose inputs are published, each by the first quantity that was measured."""
    seen: Counter[str] = Counter()
    for run in read_peaks():
        name = next((name for name in COUNTS if name in run.counted), None)
        if name is None or run.apart:
            continue
        found = _read(run, Peak(run.counted[name], run.counted[name], KINDS[name]))
        seen[found.case] += 1  # one run was measured again
        yield found._replace(case=f"{found.case} ({seen[found.case]})" if seen[found.case] > 1 else found.case), run


def describe_ours(run: Measured) -> dict[str, Any]:
    """Return our answer, as `compare.read_ours` reads it."""
    found = estimate_measured(run)
    sizes = {name: getattr(found, name)._asdict() for name in ("allocated", "reserved", "device")}
    return {**sizes, "verdict": found.verdict.outcome, "reason": None}


def _read(run: Measured, peak: Peak) -> Run:
    facts = run.facts
    memory = facts.get("hardware.memory_bytes") or {"A100-40GB": 40, "RTX-A6000": 48}[facts["hardware.gpu"]] * 2**30
    found = Run(
        case=f"{run.source}: {run.name}",
        group=run.source,
        outcome=run.outcome,
        device_bytes=int(memory),
        gpu=str(facts.get("hardware.gpu", "H100")),
        ranks=facts.get("hardware.world_size", 1),
        ranks_per_node=min(8, facts.get("hardware.world_size", 1)),
        peak=peak,
    )
    family = FAMILIES.get(facts["model.model_type"])
    if family is None:
        return found._replace(inexpressible="blocks of another kind")
    shape = _shape(family, facts)
    quantization, context = None, facts.get("training.context_parallel", 1)
    if facts.get("model.quantization"):
        quantization = "nf4-double" if facts.get("model.double_quantization") else "nf4"
    policy = {"every_other_product": "selective"}.get(str(facts.get("training.checkpointing_policy")), "full")
    return found._replace(
        shape=shape,
        adapter=_adapter(shape, facts),
        weights="fp32" if facts.get("training.param_dtype") == "float32" or _is_wide(facts) else "bf16",
        quantization=quantization,
        batch=facts["training.micro_batch_size"],
        tokens=facts["training.sequence_length"] // context,
        assumed=("context parallelism as shorter sequences",) if context > 1 else (),
        besides=("compile",) if facts.get("training.compile") else (),
        recompute=policy if facts.get("training.gradient_checkpointing") else "none",
        sharding={"fsdp": "fsdp"}.get(str(facts.get("training.sharding")), "none"),
        tensor_parallel=facts.get("training.tensor_parallel", 1),
        attention=str(facts.get("model.attn_implementation", "sdpa")),
    )


def _is_wide(facts: Mapping[str, Any]) -> bool:
    """Tell whether weights are float32, the base of adapters too."""
    return bool(
        facts.get("model.load_dtype") == "float32" and facts.get("training.mixed_precision") in {"bf16", "fp16"}
    )


def _shape(family: str, facts: Mapping[str, Any]) -> Shape:
    return Shape(
        family,
        *(facts[f"model.{name}"] for name in (
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
            "vocab_size", "tie_word_embeddings",
        )),
    )  # fmt: skip


def _adapter(shape: Shape, facts: Mapping[str, Any]) -> Adapter | None:
    if facts["training.peft"] in {None, "none"}:
        return None
    rank, targets = facts.get("training.lora_rank", 8), tuple(facts["training.lora_target_modules"])
    count = facts.get("model.trainable_parameters") or count_lora(shape, rank, targets)
    return Adapter("lora", count, count, rank, targets)
