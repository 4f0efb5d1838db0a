"""Building blocks of the formulas: what one linear layer, norm, attention or MLP of a transformer holds, in parameters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.architectures.keys import Keys


class LinearLayer(NamedTuple):
    """A linear layer that each of some blocks has."""

    path: str
    """Its name inside a block; those of routed experts have ``*`` in the place of a number."""
    inputs: int
    outputs: int
    blocks: int
    """How many there are: one in each of so many blocks, of experts one in each expert of them."""

    @property
    def is_attention(self) -> bool:
        """Whether it is part of attention, and not of an MLP."""
        return "attn" in self.path or "attention" in self.path

    @property
    def is_mlp(self) -> bool:
        """Whether it is part of a block's MLP, which a tower calls as it likes; a mixer is none, nor what merges patches."""
        return not (self.is_attention or "merger" in self.path or self.path.startswith(("mamba.", "mixer.")))

    def __str__(self) -> str:
        return f"{self.path} {self.blocks}x{self.inputs}x{self.outputs}"


def read_linear_layer(text: str) -> LinearLayer:
    """Return what a line made of one says.

    Raises:
        ValueError: it is no such line.
    """
    path, _, sizes = text.rpartition(" ")
    blocks, inputs, outputs = map(int, sizes.split("x"))
    return LinearLayer(path, inputs, outputs, blocks)


class ParameterCounts(NamedTuple):
    """Parameters per component; ``total = in_blocks + embedding + lm_head + vision + other``, experts lie in the blocks.

    A parameter shared by two modules (a tied head) counts once, as the embedding. Buffers are no parameters.
    """

    total: int
    """All parameters, as ``model.num_parameters()`` of the loaded model."""
    in_blocks: int
    """Inside the repeated blocks of the language model, which gradient checkpointing wraps; encoder and decoder of
    encoder–decoder models, the layers of encoder-only models; not the layers of a vision or audio tower."""
    embedding: int
    """Token embedding; position and type embeddings are ``other``."""
    lm_head: int
    """Output projection: 0 when tied, or its bias alone where it has one."""
    expert: int
    """Inside the routed experts of all layers, part of ``in_blocks``; routers and shared experts are not."""
    expert_per_layer: int
    """Inside the routed experts of the layer that has most."""
    vision: int
    """Vision and audio towers with the projectors between them and the language model."""
    other: int
    """The rest: final norm, position embeddings, pooling, heads that are no vocabulary projection."""
    tower: tuple[LinearLayer, ...] = ()
    """Linear layers in the blocks of the vision tower, where its type is known."""
    linears: tuple[LinearLayer, ...] = ()
    """Linear layers in the blocks of the language model, where these have experts or are not all alike and its formula tells
    them. Named as in transformers 4.57, where each routed expert is a module of its own; with routers, whatever they are."""
    unused: bool | None = None
    """Whether the vision tower computes what the model takes nothing of; None where nobody knows."""


class Layer(NamedTuple):
    """One repeated block."""

    dense: int
    """Parameters outside routed experts."""
    experts: int = 0
    """Parameters inside routed experts."""
    linears: tuple[LinearLayer, ...] = ()
    """Its linear layers, where the formula tells them."""


def assemble(layers: Sequence[Layer], *, embedding: int, lm_head: int = 0, other: int = 0) -> ParameterCounts:
    """Sum the components of one model."""
    expert = sum(layer.experts for layer in layers)
    blocks = sum(layer.dense for layer in layers) + expert
    largest = max((layer.experts for layer in layers), default=0)
    total = blocks + embedding + lm_head + other
    counts = ParameterCounts(total, blocks, embedding, lm_head, expert, largest, 0, other)
    return counts._replace(linears=_gather(layers))


def _gather(layers: Sequence[Layer]) -> tuple[LinearLayer, ...]:
    """Sum up the linear layers of blocks by name and size; none where one of the blocks tells none."""
    if not all(layer.linears for layer in layers):
        return ()
    found: Counter[LinearLayer] = Counter()
    for layer in layers:
        for one in layer.linears:
            found[one._replace(blocks=0)] += one.blocks
    return tuple(one._replace(blocks=number) for one, number in found.items())


def linear(inputs: int, outputs: int, bias: bool = False) -> int:  # noqa: FBT001, FBT002 - as torch.nn.Linear
    """Count a weight of outputs × inputs and its bias."""
    return inputs * outputs + (outputs if bias else 0)


def layer_norm(width: int, count: int = 1) -> int:
    """Count norms with weight and bias."""
    return 2 * width * count


class Heads(NamedTuple):
    """Attention geometry."""

    hidden: int
    """Width of the residual stream."""
    query: int
    """Query heads."""
    key_value: int
    """Key and value heads."""
    width: int
    """Width of one head."""

    @classmethod
    def of(cls, keys: Keys, *, width: bool = True) -> Heads:
        """Read the geometry, with transformers' fallbacks: as many key-value heads as query heads, hidden / heads wide.

        Args:
            keys: the language model's keys.
            width: whether the model reads ``head_dim``.
        """
        hidden, query = keys.size("hidden_size"), keys.size("num_attention_heads")
        key_value = keys.optional("num_key_value_heads") or query
        return cls(hidden, query, key_value, (keys.optional("head_dim") if width else None) or hidden // query)

    def attention(self, *, qkv_bias: bool = False, out_bias: bool = False) -> int:
        """Count separate or fused query, key, value projections and the output projection."""
        query, key_value = self.query * self.width, self.key_value * self.width
        return linear(self.hidden, query + 2 * key_value, qkv_bias) + linear(query, self.hidden, out_bias)

    def linears(self, *, gate: bool = False) -> tuple[LinearLayer, ...]:
        """Return the projections of attention; with a ``gate`` beside each query, those of queries are twice as wide."""
        query, key_value = self.query * self.width, self.key_value * self.width
        return (
            LinearLayer("self_attn.q_proj", self.hidden, query * (2 if gate else 1), 1),
            LinearLayer("self_attn.k_proj", self.hidden, key_value, 1),
            LinearLayer("self_attn.v_proj", self.hidden, key_value, 1),
            LinearLayer("self_attn.o_proj", query, self.hidden, 1),
        )


GATED = "gate_proj up_proj down_proj"
"""Usual names of the linear layers of a gated MLP, the last one gives its outputs."""


def mlp_linears(path: str, hidden: int, width: int, *, number: int = 1, names: str = GATED) -> tuple[LinearLayer, ...]:
    """Return the linear layers of so many MLPs of a block."""
    *into, out = names.split()
    return (
        *(LinearLayer(f"{path}.{name}", hidden, width, number) for name in into),
        LinearLayer(f"{path}.{out}", width, hidden, number),
    )


def expert_linears(
    hidden: int, width: int, number: int, *, path: str = "mlp", names: str = GATED, router: str = "gate"
) -> tuple[LinearLayer, ...]:
    """Return the linear layers of the routed experts of a block, and their router."""
    experts = mlp_linears(f"{path}.experts.*", hidden, width, number=number, names=names)
    return (*experts, LinearLayer(f"{path}.{router}", hidden, number, 1))


def gated_mlp(hidden: int, intermediate: int, bias: bool = False) -> int:  # noqa: FBT001, FBT002
    """Count gate, up and down projections."""
    return 2 * linear(hidden, intermediate, bias) + linear(intermediate, hidden, bias)


def plain_mlp(hidden: int, intermediate: int, bias: bool = False) -> int:  # noqa: FBT001, FBT002
    """Count up and down projections."""
    return linear(hidden, intermediate, bias) + linear(intermediate, hidden, bias)


def decoder(
    keys: Keys,
    layers: Layer | Sequence[Layer],
    *,
    final_norm: int | None = None,
    other: int = 0,
    head_bias: bool = False,
    tied: bool | None = None,
) -> ParameterCounts:
    """Assemble a causal language model.

    Args:
        keys: its keys; ``hidden_size``, ``vocab_size``, ``num_hidden_layers`` and ``tie_word_embeddings`` are read here.
        layers: one block, repeated ``num_hidden_layers`` times, or all of them.
        final_norm: parameters of the norm before the head; a weight of the hidden size unless given.
        other: parameters outside blocks, embedding, final norm and head, such as learned positions.
        head_bias: whether the head has a bias.
        tied: whether head and embedding are one tensor; from ``tie_word_embeddings`` unless given.
    """
    hidden, vocab = keys.size("hidden_size"), keys.size("vocab_size")
    stack = [layers] * keys.amount("num_hidden_layers") if isinstance(layers, Layer) else layers
    tied = keys.flag("tie_word_embeddings") if tied is None else tied
    lm_head = (0 if tied else hidden * vocab) + (vocab if head_bias else 0)
    final_norm = hidden if final_norm is None else final_norm
    return assemble(stack, embedding=hidden * vocab, lm_head=lm_head, other=final_norm + other)
