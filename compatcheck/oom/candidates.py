"""Enumerate the tensors of a run that an allocation may have been for, each with its shape and where it can arise.

Families are those that were seen in public messages: weights and casts while loading, flat buffers and partitions of
optimizers, gathers of ZeRO-3 and FSDP, logits and log-probabilities, attention scores and masks, activations.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.out_of_memory import Match
from compatcheck.oom.dimensions import Amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.oom.dimensions import Dimensions

WIDTHS = {"fp32": 4.0, "16-bit": 2.0, "8-bit": 1.0, "4-bit": 0.5}
"""Bytes of an element; bf16 and fp16 cannot be told apart by size."""
FLOATS = ("fp32", "16-bit")

LOGITS = frozenset({"loss", "logits", "log_probabilities", "gathered_logits", "forward", "backward"})
HIDDEN = frozenset({"attention", "mlp", "norm", "embedding", "forward", "backward", "dequantise"})
INNER = frozenset({"mlp", "forward", "backward"})
SCORES = frozenset({"attention", "mask", "forward", "backward"})
HEADS = frozenset({"attention", "forward", "backward"})
CACHED = HEADS | {"kv_cache"}
_LOADING = ("weights", "cast", "checkpoint")
_STATE = (
    "optimizer_state",
    "flat_parameters",
    "optimizer",
    "gradients",
    "parameters",
    "reduce",
    "state",
    "buckets",
    "backward",
)
_MODULES = ("mlp", "attention", "embedding", "logits", "forward", "loss", "log_probabilities", "quantise", "dequantise")
WEIGHTS = frozenset((*_LOADING, *_STATE, *_MODULES))
"""Loaded, cast under autocast, dequantised; and their gradients and optimizer states."""
QUANTISED = frozenset((*_LOADING, "quantise"))
BUFFERS = frozenset((*_LOADING, *_STATE, "warm_up"))
RANKS = (1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
"""Numbers of ranks tried for a partition when nobody states one."""
_GATHERS = 3
"""Stage of ZeRO in which parameters are gathered."""
DEFAULT_BUCKET = 500_000_000
DEFAULT_SUB_GROUP = 1_000_000_000
"""DeepSpeed's reduce_bucket_size, allgather_bucket_size and sub_group_size: deepspeed/runtime/zero/config.py."""

BUDGETS = ("training.micro_batch_tokens", "rollout.log_prob_micro_batch_tokens")
"""Tokens that sequences packed into one micro batch may have together."""


class Tensor(NamedTuple):
    """A tensor some part of the run may allocate."""

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    parts: frozenset[str]
    """Places (`Place.part`) where it can arise."""
    formula: str
    facts: tuple[str, ...]
    inferred: tuple[str, ...] = ()

    def matches(self) -> Iterator[Match]:
        """Yield the tensor in every dtype it may have."""
        for dtype in self.dtypes:
            size = -int(-prod(self.shape) * WIDTHS[dtype] // 1)
            name = f"{dtype} {self.name}"
            yield Match(name, self.shape, dtype, size, self.formula, self.facts, self.inferred)


def weights(run: Dimensions, *, serving: bool) -> Iterator[Tensor]:
    """Enumerate single weights of the language model; full, and split over tensor-parallel ranks.

    Args:
        run: dimensions of the run.
        serving: whether a serving engine holds the model, which fuses query, key and value, and gate and up; some models do so
            themselves.
    """
    hidden, inner, vocab = run.model("hidden_size"), run.model("intermediate_size"), run.model("vocab_size")
    heads, key_value, width = run.model("num_attention_heads"), run.model("num_key_value_heads"), run.head_dim
    floats = (*FLOATS, "8-bit")
    for ranks in run.tensor_parallel():
        split = "" if ranks == 1 else f" / {ranks}"
        facts = ("model.hidden_size",) + (("training.tensor_parallel",) if ranks > 1 else ())
        if hidden and vocab:
            rows = -(-vocab // ranks)
            name = "embedding or output projection weight"
            yield Tensor(
                name, (rows, hidden), FLOATS, WEIGHTS, f"[vocab_size{split}, hidden_size]", (*facts, "model.vocab_size")
            )
            padded = -(-vocab // 64) * 64 // ranks
            if serving and padded != rows:
                formula = f"[vocab_size padded to 64{split}, hidden_size]"
                yield Tensor(name, (padded, hidden), FLOATS, WEIGHTS, formula, (*facts, "model.vocab_size"))
        if hidden and inner and not (inner % ranks):
            formula, names = f"[intermediate_size{split}, hidden_size]", (*facts, "model.intermediate_size")
            yield from _linear("gate, up or down projection weight", (inner // ranks, hidden), floats, formula, names)
            if run.fuses(gate_up=True, serving=serving):
                formula = f"[2 × intermediate_size{split}, hidden_size]"
                yield from _linear(
                    "fused gate and up projection weight", (2 * inner // ranks, hidden), floats, formula, names
                )
        if hidden and heads and key_value and width and not (heads % ranks):
            names = (*facts, "model.num_attention_heads", "model.head_dim")
            query, shared = heads * width // ranks, max(1, key_value // ranks) * width
            formula = f"[heads × head_dim{split}, hidden_size]"
            yield from _linear("query or attention output projection weight", (query, hidden), floats, formula, names)
            if key_value != heads:
                formula = f"[key-value heads × head_dim{split}, hidden_size]"
                yield from _linear("key or value projection weight", (shared, hidden), floats, formula, names)
            if run.fuses(gate_up=False, serving=serving):
                formula = f"[(heads + 2 × key-value heads) × head_dim{split}, hidden_size]"
                yield from _linear(
                    "fused query, key and value weight", (query + 2 * shared, hidden), floats, formula, names
                )
        yield from _experts(run, ranks, split, facts)


def _linear(
    name: str, shape: tuple[int, ...], dtypes: tuple[str, ...], formula: str, facts: tuple[str, ...]
) -> Iterator[Tensor]:
    yield Tensor(name, shape, dtypes, WEIGHTS, formula, facts)
    yield Tensor(f"packed {name}", shape, ("4-bit",), QUANTISED, formula, facts)


def _experts(run: Dimensions, ranks: int, split: str, facts: tuple[str, ...]) -> Iterator[Tensor]:
    hidden, experts, inner = run.model("hidden_size"), run.model("num_experts"), run.model("moe_intermediate_size")
    if not (hidden and experts and inner) or inner % ranks:
        return
    facts = (*facts, "model.num_experts", "model.moe_intermediate_size")
    if inner != run.model("intermediate_size"):
        formula = f"[moe_intermediate_size{split}, hidden_size]"
        name = "gate, up or down weight of one expert"
        yield from _linear(name, (inner // ranks, hidden), (*FLOATS, "8-bit"), formula, facts)
    parallel = run.number("training.expert_parallel") or 1
    for part in dict.fromkeys((experts, experts // parallel)):
        name, formula = "gate and up weight of all experts", f"[experts, 2 × moe_intermediate_size{split}, hidden_size]"
        yield Tensor(name, (part, 2 * inner // ranks, hidden), (*FLOATS, "8-bit"), WEIGHTS, formula, facts)
        name, formula = "down weight of all experts", f"[experts, hidden_size, moe_intermediate_size{split}]"
        yield Tensor(name, (part, hidden, inner // ranks), (*FLOATS, "8-bit"), WEIGHTS, formula, facts)


def buffers(run: Dimensions, *, deepspeed: bool, solve_ranks: bool) -> Iterator[Tensor]:
    """Enumerate buffers of the whole model, of its partitions, of one block, and DeepSpeed's buckets.

    Args:
        run: dimensions of the run.
        deepspeed: whether DeepSpeed takes part, so that its default buckets are tried.
        solve_ranks: whether to try usual numbers of ranks when the world size is not known.
    """
    counts = {run.model(name): name for name in ("parameters", "trainable_parameters") if run.model(name)}
    world = run.number("hardware.world_size")
    for count, name in counts.items():
        if count is None:
            continue
        what = "all parameters" if name == "parameters" else "all trainable parameters"
        yield Tensor(f"flat buffer of {what}", (count,), FLOATS, BUFFERS, f"[{name}]", (f"model.{name}",))
        double = "loader's warm-up buffer, 8 bytes per parameter"
        yield Tensor(
            double, (2 * count,), ("fp32",), frozenset({"warm_up", "weights"}), f"[2 × {name}]", (f"model.{name}",)
        )
        for ranks in (world,) if world else RANKS if solve_ranks else ():
            if ranks == 1:
                continue
            part = -(-count // ranks)
            of = (f"model.{name}", *(("hardware.world_size",) if world else ()))
            inferred = () if world else (f"{ranks} data-parallel ranks",)
            label = f"partition of {what} over {ranks} ranks"
            yield Tensor(label, (part,), FLOATS, BUFFERS, f"[{name} / {ranks}]", of, inferred)
    blocks, layers = run.model("parameters_in_blocks"), run.model("num_hidden_layers")
    if blocks and layers:
        facts = ("model.parameters_in_blocks", "model.num_hidden_layers")
        parts = frozenset({"parameters", "flat_parameters", "reduce", "backward", "optimizer", "state"})
        formula = "[parameters_in_blocks / layers]"
        yield Tensor("parameters of one block", (blocks // layers,), FLOATS, parts, formula, facts)
        if world and world > 1:
            name, formula = f"shard of one block over {world} ranks", "[parameters_in_blocks / layers / world_size]"
            shape = (-(-blocks // layers // world),)
            yield Tensor(name, shape, FLOATS, BUFFERS, formula, (*facts, "hardware.world_size"))
    if run.number("training.zero_stage") == _GATHERS:
        yield from _gathers(run)
    yield from _buckets(run, deepspeed=deepspeed)


def _gathers(run: Dimensions) -> Iterator[Tensor]:
    """Yield what ZeRO-3 gathers into one buffer: the weights of several modules that run one after the other."""
    hidden, inner = run.model("hidden_size"), run.model("intermediate_size")
    heads, key_value, width = run.model("num_attention_heads"), run.model("num_key_value_heads"), run.head_dim
    parts = frozenset({"parameters"})
    if hidden and heads and key_value and width:
        names: tuple[str, ...] = (
            "model.hidden_size",
            "model.num_attention_heads",
            "model.num_key_value_heads",
            "training.zero_stage",
        )
        fused, formula = (heads + 2 * key_value) * width, "(heads + 2 × key-value heads) × head_dim"
        name = "gathered query, key and value weights"
        yield Tensor(name, (fused, hidden), FLOATS, parts, f"[{formula}, hidden_size]", names)
        name, formula = "gathered weights of the attention", "(2 × heads + 2 × key-value heads) × head_dim"
        yield Tensor(name, (fused + heads * width, hidden), FLOATS, parts, f"[{formula}, hidden_size]", names)
    if hidden and inner:
        names = ("model.hidden_size", "model.intermediate_size", "training.zero_stage")
        for count, name in ((2, "gathered gate and up weights"), (3, "gathered weights of the MLP")):
            formula = f"[{count} × intermediate_size, hidden_size]"
            yield Tensor(name, (count * inner, hidden), FLOATS, parts, formula, names)


def _buckets(run: Dimensions, *, deepspeed: bool) -> Iterator[Tensor]:
    parts = frozenset({"reduce", "optimizer_state", "optimizer", "parameters", "backward", "gradients"})
    for name in ("reduce_bucket_size", "allgather_bucket_size", "prefetch_bucket_size"):
        size = run.number(f"training.{name}")
        if size:
            yield Tensor(f"bucket of {name}", (size,), FLOATS, parts, f"[{name}]", (f"training.{name}",))
        elif deepspeed and name == "reduce_bucket_size":
            inferred = (f"{DEFAULT_BUCKET:,} elements, DeepSpeed's default",)
            yield Tensor("reduce or all-gather bucket", (DEFAULT_BUCKET,), FLOATS, parts, f"[{name}]", (), inferred)
    if deepspeed:
        inferred = (f"sub_group_size of {DEFAULT_SUB_GROUP:,} elements, DeepSpeed's default",)
        yield Tensor(
            "sub-group of the optimizer", (DEFAULT_SUB_GROUP,), FLOATS, parts, "[sub_group_size]", (), inferred
        )


class PerToken(NamedTuple):
    """A tensor that grows with the number of tokens."""

    name: str
    features: tuple[int, ...]
    """Dimensions behind the tokens."""
    dtypes: tuple[str, ...]
    parts: frozenset[str]
    formula: str
    facts: tuple[str, ...]


def per_token(run: Dimensions, *, serving: bool) -> Iterator[PerToken]:
    """Enumerate what one token of a forward pass takes, tensor by tensor."""
    hidden, inner, vocab = run.model("hidden_size"), run.model("intermediate_size"), run.model("vocab_size")
    heads, key_value, width = run.model("num_attention_heads"), run.model("num_key_value_heads"), run.head_dim
    for ranks in run.tensor_parallel():
        split = "" if ranks == 1 else f" / {ranks}"
        ranked = ("training.tensor_parallel",) if ranks > 1 else ()
        if vocab:
            yield PerToken(
                "logits", (-(-vocab // ranks),), FLOATS, LOGITS, f"vocab_size{split}", ("model.vocab_size", *ranked)
            )
        if hidden and ranks == 1:
            yield PerToken("hidden states", (hidden,), FLOATS, HIDDEN, "hidden_size", ("model.hidden_size",))
        if inner and not (inner % ranks):
            facts = ("model.intermediate_size", *ranked)
            yield PerToken("MLP activation", (inner // ranks,), FLOATS, INNER, f"intermediate_size{split}", facts)
            if run.fuses(gate_up=True, serving=serving):
                yield PerToken(
                    "fused gate and up activation",
                    (2 * inner // ranks,),
                    FLOATS,
                    INNER,
                    f"2 × intermediate_size{split}",
                    facts,
                )
        if heads and width and heads * width != hidden:
            facts = ("model.num_attention_heads", "model.head_dim", *ranked)
            yield PerToken("queries", (heads * width // ranks,), FLOATS, HEADS, f"heads × head_dim{split}", facts)
        if key_value and width and key_value != heads:
            facts = ("model.num_key_value_heads", "model.head_dim", *ranked)
            size = max(1, key_value // ranks) * width
            yield PerToken("keys or values", (size,), FLOATS, CACHED, f"key-value heads × head_dim{split}", facts)
    experts = run.model("num_experts_per_token")
    if experts and hidden:
        facts = ("model.num_experts_per_token", "model.hidden_size")
        yield PerToken(
            "routed hidden states", (experts, hidden), FLOATS, INNER, "experts per token, hidden_size", facts
        )


def activations(run: Dimensions, *, serving: bool) -> Iterator[Tensor]:
    """Enumerate activations of the batch and length that the configuration states."""
    batches, lengths = run.batches(), run.lengths()
    for kind in per_token(run, serving=serving):
        for batch in batches:
            for length in _lengths(lengths, kind):
                shape = (batch.value, length.value, *kind.features)
                formula = f"[{batch.words}, {length.words}, {kind.formula}]"
                yield Tensor(
                    kind.name, shape, kind.dtypes, kind.parts, formula, (*batch.facts, *length.facts, *kind.facts)
                )
    vocab = run.model("vocab_size")
    for name in ("rollout.max_num_seqs", "rollout.max_num_batched_tokens", *BUDGETS):
        count, of_engine = run.number(name), name not in BUDGETS
        if count is None:
            continue
        for kind in per_token(run, serving=serving or of_engine):
            if not of_engine or (kind.name == "logits") == (name == "rollout.max_num_seqs"):
                formula = f"[{name.partition('.')[2]}, {kind.formula}]"
                yield Tensor(kind.name, (count, *kind.features), kind.dtypes, kind.parts, formula, (name, *kind.facts))
    samples = run.number("training.eval_samples")
    if samples and vocab:
        for length in lengths:
            facts = ("training.eval_samples", *length.facts, "model.vocab_size")
            parts = frozenset({"gathered_logits"})
            formula = f"[eval_samples, {length.words}, vocab_size]"
            yield Tensor("logits of the evaluation set", (samples, length.value, vocab), FLOATS, parts, formula, facts)
    yield from _squares(run, batches, lengths)
    yield from _caches(run, batches, lengths)


def _caches(run: Dimensions, batches: Iterable[Amount], lengths: Iterable[Amount]) -> Iterator[Tensor]:
    """Yield caches of a full length, and keys or values repeated for every head (torchtune keeps its cache so)."""
    heads, key_value, width = run.model("num_attention_heads"), run.model("num_key_value_heads"), run.head_dim
    longest = run.model("max_position_embeddings")
    if not (heads and key_value and width):
        return
    whole = [Amount(longest, "max_position_embeddings", ("model.max_position_embeddings",))] if longest else []
    for batch in batches:
        for length in (*lengths, *whole):
            facts = (*batch.facts, *length.facts, "model.head_dim")
            for count, words, name in ((key_value, "key-value heads", "keys or values"), (heads, "heads", _REPEATED)):
                if count == heads and name != _REPEATED:
                    continue
                parts = CACHED if length not in whole else frozenset({"kv_cache"})
                formula = f"[{batch.words}, {words}, {length.words}, head_dim]"
                yield Tensor(name, (batch.value, count, length.value, width), FLOATS, parts, formula, facts)


_REPEATED = "keys or values of all heads"


def _lengths(lengths: Iterable[Amount], kind: PerToken) -> Iterator[Amount]:
    for length in lengths:
        yield length
        if kind.name == "logits" and length.value > 1:
            yield Amount(length.value - 1, f"{length.words} - 1", length.facts)


def _squares(run: Dimensions, batches: Iterable[Amount], lengths: Iterable[Amount]) -> Iterator[Tensor]:
    """Yield what grows with the square of the length: attention scores and masks."""
    heads = run.model("num_attention_heads")
    for batch in batches:
        for length in lengths:
            facts = (*batch.facts, *length.facts)
            size = length.value
            if heads:
                for ranks in run.tensor_parallel():
                    if not heads % ranks:
                        shape = (batch.value, heads // ranks, size, size)
                        split = "" if ranks == 1 else f" / {ranks}"
                        formula = f"[{batch.words}, heads{split}, {length.words}, {length.words}]"
                        names = (*facts, "model.num_attention_heads")
                        yield Tensor("attention scores", shape, FLOATS, SCORES, formula, names)
            formula = f"[{batch.words}, 1, {length.words}, {length.words}]"
            parts = frozenset({"mask", "attention", "forward"})
            yield Tensor("attention mask", (batch.value, 1, size, size), (*FLOATS, "8-bit"), parts, formula, facts)
    longest = run.model("max_position_embeddings")
    if longest:
        formula = "[max_position_embeddings, max_position_embeddings]"
        name, facts = "causal mask of the longest sequence", ("model.max_position_embeddings",)
        masking, buffer = frozenset({"mask", "forward"}), frozenset({"weights", "cast", "mask", "forward"})
        yield Tensor(name, (longest, longest), FLOATS, masking, formula, facts)
        yield Tensor(name, (longest, longest), ("8-bit",), buffer, formula, facts)  # what a model keeps is of booleans
