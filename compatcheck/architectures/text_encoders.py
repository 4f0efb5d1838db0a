"""Formulas of text encoders that were checked against transformers 5.24.0.

Like those of `recent` their configuration classes are not among the class defaults, so a file that leaves out a dimension is
not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.heads import DISCRIMINATOR, MASKED, count_classifier, count_labels, find_head
from compatcheck.architectures.keys import ClassDefaults
from compatcheck.architectures.parts import (
    Layer,
    ParameterCounts,
    assemble,
    gated_mlp,
    layer_norm,
    linear,
    plain_mlp,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.decoders import Formula
    from compatcheck.architectures.keys import Keys

_TIED = {"tie_word_embeddings": True}
_DISTILBERT = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
}
_NOMIC = {
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
}
CONFIGURATIONS: Mapping[str, ClassDefaults] = {
    "deberta-v2": ClassDefaults(
        {**_TIED, "relative_attention": False, "position_biased_input": True, "type_vocab_size": 0, "legacy": True},
        {},
        {},
    ),
    "distilbert": ClassDefaults(_TIED, _DISTILBERT, {}),
    "electra": ClassDefaults({**_TIED, "type_vocab_size": 2}, {}, {}),
    "modernbert": ClassDefaults({**_TIED, "decoder_bias": True}, {}, {}),
    "mpnet": ClassDefaults({**_TIED, "relative_attention_num_buckets": 32}, {}, {}),
    "nomic_bert": ClassDefaults({"type_vocab_size": 2}, _NOMIC, {}),
}
"""Model type → what its configuration class says about keys that a file leaves out."""
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def _assemble(keys: Keys, block: int, other: int, head: str, *, pooled: bool = False) -> ParameterCounts:
    """Join equal blocks with embeddings of the hidden size and the head; a masked one transforms, then has a bias per word."""
    hidden, vocab = keys.size("hidden_size"), keys.size("vocab_size")
    if head == MASKED:
        other += linear(hidden, hidden, bias=True) + layer_norm(hidden)
    else:
        other += count_classifier(keys, head, hidden, pooled=pooled)
    layers = [Layer(block)] * keys.amount("num_hidden_layers")
    return assemble(layers, embedding=hidden * vocab, lm_head=vocab if head == MASKED else 0, other=other)


def _block(keys: Keys) -> int:
    """Count a block of BERT."""
    hidden = keys.size("hidden_size")
    mlp = plain_mlp(hidden, keys.size("intermediate_size"), bias=True)
    return 4 * linear(hidden, hidden, bias=True) + mlp + layer_norm(hidden, 2)


def _is_complete(keys: Keys, *further: str) -> bool:
    return all(map(keys.has, (*_SIZES, *further))) and keys.flag("tie_word_embeddings", default=True)


def _distilbert(keys: Keys) -> ParameterCounts | None:
    head = find_head(keys)
    if head is None or not _is_complete(keys, "max_position_embeddings"):
        return None
    hidden = keys.size("hidden_size")
    return _assemble(keys, _block(keys), keys.size("max_position_embeddings") * hidden + layer_norm(hidden), head)


def _mpnet(keys: Keys) -> ParameterCounts | None:
    head = find_head(keys)
    if head is None or not _is_complete(keys, "max_position_embeddings"):
        return None
    hidden = keys.size("hidden_size")
    table = keys.size("relative_attention_num_buckets") * keys.size("num_attention_heads")
    other = keys.size("max_position_embeddings") * hidden + layer_norm(hidden) + table
    return _assemble(keys, _block(keys), other, head, pooled=True)


def _electra(keys: Keys) -> ParameterCounts | None:
    """Count ELECTRA, whose embeddings may be narrower than its blocks."""
    head = find_head(keys)
    if head is None or not _is_complete(keys, "max_position_embeddings", "embedding_size"):
        return None
    hidden, narrow, vocab = keys.size("hidden_size"), keys.size("embedding_size"), keys.size("vocab_size")
    other = (keys.size("max_position_embeddings") + keys.size("type_vocab_size")) * narrow + layer_norm(narrow)
    other += 0 if narrow == hidden else linear(narrow, hidden, bias=True)
    if head == MASKED:
        other += linear(hidden, narrow, bias=True) + layer_norm(narrow)
    elif head == DISCRIMINATOR:
        other += linear(hidden, hidden, bias=True) + linear(hidden, 1, bias=True)
    else:
        other += count_classifier(keys, head, hidden, pooled=False)
    layers = [Layer(_block(keys))] * keys.amount("num_hidden_layers")
    return assemble(layers, embedding=narrow * vocab, lm_head=vocab if head == MASKED else 0, other=other)


def _deberta_v2(keys: Keys) -> ParameterCounts | None:
    """Count DeBERTa v2 and v3 with keys and queries of positions made by the layers of attention, as the published ones do."""
    head = find_head(keys)
    if head is None or not _is_complete(keys) or not keys.flag("legacy"):
        return None
    if keys.has("embedding_size") and keys.size("embedding_size") != keys.size("hidden_size"):
        return None
    hidden, other = keys.size("hidden_size"), layer_norm(keys.size("hidden_size"))
    if keys.flag("relative_attention"):
        if not keys.flag("share_att_key"):
            return None
        buckets, _ = keys.find("position_buckets")
        if not isinstance(buckets, int) or buckets < 1:
            return None
        other += 2 * buckets * hidden
    other += layer_norm(hidden) if "layer_norm" in (keys.text("norm_rel_ebd") or "").lower() else 0
    if keys.flag("position_biased_input"):
        other += keys.size("max_position_embeddings") * hidden
    other += keys.amount("type_vocab_size", 0) * hidden
    kernel = keys.amount("conv_kernel_size", 0)
    if kernel:
        other += hidden * hidden * kernel // keys.amount("conv_groups", 1) + hidden + layer_norm(hidden)
    return _assemble(keys, _block(keys), other, head)


def _modernbert(keys: Keys) -> ParameterCounts | None:
    """Count ModernBERT, whose first layer has no norm before attention and which transforms before every head."""
    head = find_head(keys)
    biased = any(map(keys.flag, ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")))
    if head is None or biased or not _is_complete(keys):
        return None
    hidden, vocab, layers = keys.size("hidden_size"), keys.size("vocab_size"), keys.amount("num_hidden_layers")
    block = 4 * linear(hidden, hidden) + gated_mlp(hidden, keys.size("intermediate_size")) + 2 * hidden
    stack = [Layer(block - (0 if i else hidden)) for i in range(layers)]
    other = 2 * hidden + (0 if head == "Model" else linear(hidden, hidden) + hidden)
    if head not in {"Model", MASKED}:
        other += linear(hidden, count_labels(keys), bias=True)
    bias = vocab if head == MASKED and keys.flag("decoder_bias") else 0
    return assemble(stack, embedding=hidden * vocab, lm_head=bias, other=other)


def _nomic_bert(keys: Keys) -> ParameterCounts | None:
    """Count Nomic Embed's encoder, with rotary positions and gated MLPs; the class in its own repository has the same weights."""
    biased = any(map(keys.flag, ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")))
    if not _is_complete(keys) or biased or find_head(keys) != "Model":
        return None
    hidden = keys.size("hidden_size")
    block = 4 * linear(hidden, hidden) + gated_mlp(hidden, keys.size("intermediate_size")) + layer_norm(hidden, 2)
    return _assemble(keys, block, keys.amount("type_vocab_size") * hidden + layer_norm(hidden), "Model")


FORMULAS: Mapping[str, Formula] = {
    "deberta-v2": _deberta_v2,
    "distilbert": _distilbert,
    "electra": _electra,
    "modernbert": _modernbert,
    "mpnet": _mpnet,
    "nomic_bert": _nomic_bert,
}
