"""What one public report ran, in one vocabulary for every estimator.

The reports (`memory-cases.yaml`) describe their runs in the words of six frameworks. A `Run` says the same once: shapes, trained
parameters, dtypes, parallelism, what is recomputed, and what was measured. `reading.py` makes it from a report.
"""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """Dimensions of a decoder."""

    family: str
    """``llama`` (gated MLP, no biases), ``qwen2`` (the same with biases on q, k, v) or ``gpt2`` (ungated, learned positions)."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    """The output projection shares the embedding."""

    @property
    def parameters(self) -> int:
        """Number of parameters, exact for the architectures of the reports."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * self.hidden * (query + key)
        embedding = self.vocab * self.hidden
        if self.family == "gpt2":
            attention += 4 * self.hidden
            mlp = 2 * self.hidden * self.intermediate + self.hidden + self.intermediate
            return (
                embedding
                + GPT2_POSITIONS * self.hidden
                + self.layers * (attention + mlp + 4 * self.hidden)
                + 2 * self.hidden
            )
        if self.family == "qwen2":
            attention += query + 2 * key
        mlp = 3 * self.hidden * self.intermediate
        head = 0 if self.tied else embedding
        return embedding + head + self.layers * (attention + mlp + 2 * self.hidden) + self.hidden

    @property
    def largest_layer(self) -> int:
        """Parameters of the largest single layer, as DeepSpeed's estimator means it: a module's own, without its children's."""
        return max(self.vocab * self.hidden, self.hidden * self.intermediate)


GPT2_POSITIONS = 1024
"""Positions of Megatron's GPT-2 example (`--max-position-embeddings 1024`)."""


class Adapter(NamedTuple):
    """What is trained when not everything is."""

    kind: str
    """``lora`` for what has LoRA's matrices (LoRA, rsLoRA, DoRA, AdaLoRA, …), else the method's name."""
    trainable: int
    """Parameters that get gradients."""
    added: int
    """Parameters held beside the base model's: the adapter, and copies of layers trained in full."""
    rank: int | None = None
    targets: tuple[str, ...] = ()
    """Projections that carry it, by the names of Llama's layers."""


class Peak(NamedTuple):
    """What was measured, per device."""

    low: int
    high: int
    """Bytes; equal unless the report gives a range."""
    kind: str
    """``allocated``, ``reserved`` or ``device`` (nvidia-smi and the like, and where the report does not say)."""
    decimal: float = 1.0
    """What to multiply with if the report's GB is 10**9 bytes; 1 where the unit is not in doubt."""
    stated: bool = True
    """Whether the source says which of the kinds it is."""


class Run(NamedTuple):
    """One report."""

    case: str
    group: str
    """The source it shares with others, for medians per source."""
    outcome: str
    """``fits`` or ``oom``."""
    device_bytes: int
    gpu: str
    ranks: int = 1
    ranks_per_node: int = 1
    shape: Shape | None = None
    adapter: Adapter | None = None
    """None: everything is trained."""
    weights: str = "bf16"
    """How trained weights are kept: ``bf16`` (nothing else), ``bf16+master`` (fp32 copy in the optimizer) or ``fp32``."""
    quantization: str | None = None
    """``nf4``, ``nf4-double`` or ``gptq4`` for the frozen base."""
    optimizer: str = "adamw"
    """``adamw`` or ``adamw8bit``."""
    batch: int = 1
    tokens: int = 0
    """Per sequence and rank (context parallelism divides it)."""
    recompute: str = "full"
    """``none``, ``full`` (every block) or ``selective``."""
    sharding: str = "none"
    """``none``, ``ddp``, ``zero1``, ``zero3`` (DeepSpeed) or ``fsdp`` (full shard)."""
    tensor_parallel: int = 1
    attention: str = "sdpa"
    """``sdpa``, ``eager`` or ``flash``."""
    offload_optimizer: bool = False
    offload_parameters: bool = False
    besides: tuple[str, ...] = ()
    """Memory-relevant settings that no peer has an input for."""
    assumed: tuple[str, ...] = ()
    """What the report does not say, and what was taken."""
    peak: Peak | None = None
    inexpressible: str | None = None
    """Why no single training run describes it."""


def count_lora(shape: Shape, rank: int, targets: tuple[str, ...]) -> int:
    """Count LoRA's parameters: rank times the sum of both sides of each target, per layer."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sides = {
        "q_proj": shape.hidden + query,
        "k_proj": shape.hidden + key,
        "v_proj": shape.hidden + key,
        "o_proj": query + shape.hidden,
        "gate_proj": shape.hidden + shape.intermediate,
        "up_proj": shape.hidden + shape.intermediate,
        "down_proj": shape.intermediate + shape.hidden,
    }
    return shape.layers * rank * sum(sides[name] for name in targets)
