"""Formulas of encoder-only and encoder–decoder models, by model type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.heads import MASKED, count_classifier, find_head
from compatcheck.architectures.parts import Layer, ParameterCounts, assemble, gated_mlp, layer_norm, linear, plain_mlp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.decoders import Formula
    from compatcheck.architectures.keys import Keys


def _bert(keys: Keys) -> ParameterCounts | None:
    """Count BERT and RoBERTa, with the head of the class that the file names."""
    hidden, vocab, head = keys.size("hidden_size"), keys.size("vocab_size"), find_head(keys)
    if keys.flag("add_cross_attention") or keys.flag("is_decoder") or head is None:
        return None
    if not keys.flag("tie_word_embeddings") and head == MASKED:
        return None  # untied, releases differ in whether there is a second bias
    mlp = plain_mlp(hidden, keys.size("intermediate_size"), bias=True)
    layer = Layer(4 * linear(hidden, hidden, bias=True) + mlp + layer_norm(hidden, 2))
    other = (keys.size("max_position_embeddings") + keys.size("type_vocab_size")) * hidden + layer_norm(hidden)
    if head == MASKED:
        other += linear(hidden, hidden, bias=True) + layer_norm(hidden)
    else:
        other += count_classifier(keys, head, hidden, pooled=True)
    layers = [layer] * keys.amount("num_hidden_layers")
    return assemble(layers, embedding=hidden * vocab, lm_head=vocab if head == MASKED else 0, other=other)


def _t5(keys: Keys) -> ParameterCounts | None:
    hidden, vocab, width = keys.size("d_model"), keys.size("vocab_size"), keys.size("d_kv")
    heads, projection = keys.size("num_heads"), keys.text("feed_forward_proj") or ""
    tied = keys.flag("tie_word_embeddings") if keys.has("tie_word_embeddings") else keys.model_type == "t5"
    if not (tied or keys.has("tie_word_embeddings")) or keys.uses_alias("num_layers"):
        return None  # mt5 was untied by default before release 5, and is tied since
    gated = projection.startswith("gated")
    feed_forward = (gated_mlp if gated else plain_mlp)(hidden, keys.size("d_ff"))
    attention = 4 * linear(hidden, heads * width)
    encoder = Layer(attention + feed_forward + 2 * hidden)
    decoder = Layer(2 * attention + feed_forward + 3 * hidden)
    first = keys.size("relative_attention_num_buckets") * heads
    encoders = keys.amount("num_layers")
    decoders = keys.amount("num_decoder_layers", encoders)
    layers = [encoder] * encoders + [decoder] * decoders
    # the first layer of either stack holds the table of relative positions
    layers = [Layer(layer.dense + (first if i in (0, encoders) else 0)) for i, layer in enumerate(layers)]
    # a head that a file says is not tied lies beside its weights: release 5 ties it in a new model alone (tie_weights())
    return assemble(layers, embedding=hidden * vocab, lm_head=0 if tied else hidden * vocab, other=2 * hidden)


def _stack(keys: Keys, attention: int) -> list[Layer]:
    """Return the layers of an encoder and of a decoder, which attends twice."""
    hidden = keys.size("d_model")
    encoder = Layer(attention + plain_mlp(hidden, keys.size("encoder_ffn_dim"), bias=True) + layer_norm(hidden, 2))
    decoder = Layer(2 * attention + plain_mlp(hidden, keys.size("decoder_ffn_dim"), bias=True) + layer_norm(hidden, 3))
    return [encoder] * keys.amount("encoder_layers") + [decoder] * keys.amount("decoder_layers")


def _bart(keys: Keys) -> ParameterCounts | None:
    hidden, vocab = keys.size("d_model"), keys.size("vocab_size")
    if not keys.flag("tie_word_embeddings"):
        return None  # untied, encoder and decoder have embeddings of their own
    layers = _stack(keys, 4 * linear(hidden, hidden, bias=True))
    # two rows are reserved before the first position
    other = 2 * (keys.size("max_position_embeddings") + 2) * hidden + layer_norm(hidden, 2)
    return assemble(layers, embedding=hidden * vocab, other=other)


def _whisper(keys: Keys) -> ParameterCounts:
    hidden, vocab = keys.size("d_model"), keys.size("vocab_size")
    layers = _stack(keys, 4 * linear(hidden, hidden, bias=True) - hidden)  # keys have no bias
    convolutions = linear(3 * keys.size("num_mel_bins"), hidden, bias=True) + linear(3 * hidden, hidden, bias=True)
    positions = (keys.size("max_source_positions") + keys.size("max_target_positions")) * hidden
    lm_head = 0 if keys.flag("tie_word_embeddings") else hidden * vocab
    other = convolutions + positions + layer_norm(hidden, 2)
    return assemble(layers, embedding=hidden * vocab, lm_head=lm_head, other=other)


FORMULAS: Mapping[str, Formula] = {
    "bart": _bart,
    "bert": _bert,
    "mt5": _t5,
    "roberta": _bert,
    "t5": _t5,
    "whisper": _whisper,
    "xlm-roberta": _bert,
}
