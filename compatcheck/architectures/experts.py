"""Formulas of mixture-of-experts language models, by model type."""

from __future__ import annotations

from collections.abc import Mapping

from compatcheck.architectures.decoders import Formula, count_qk_norm
from compatcheck.architectures.keys import Keys
from compatcheck.architectures.parts import Heads, Layer, ParameterCounts, decoder, gated_mlp, layer_norm, linear


def _mixtral(keys: Keys) -> ParameterCounts:
    heads, experts = Heads.of(keys), keys.size("num_local_experts")
    dense = heads.attention() + experts * heads.hidden + 2 * heads.hidden
    return decoder(keys, Layer(dense, experts * gated_mlp(heads.hidden, keys.size("intermediate_size"))))


def _phimoe(keys: Keys) -> ParameterCounts:
    heads, experts, bias = Heads.of(keys), keys.size("num_local_experts"), keys.flag("attention_bias")
    hidden = heads.hidden
    dense = heads.attention(qkv_bias=bias, out_bias=bias) + experts * hidden + layer_norm(hidden, 2)
    layer = Layer(dense, experts * gated_mlp(hidden, keys.size("intermediate_size")))
    return decoder(keys, layer, final_norm=layer_norm(hidden), head_bias=keys.flag("lm_head_bias"))


def _sparse_layers(keys: Keys) -> list[bool]:
    """Tell for each layer of a Qwen model whether it has experts."""
    dense, step = keys.numbers("mlp_only_layers") or (), keys.size("decoder_sparse_step")
    experts = keys.amount("num_experts")
    layers = range(keys.amount("num_hidden_layers"))
    return [i not in dense and experts > 0 and (i + 1) % step == 0 for i in layers]


def _qwen_moe(keys: Keys) -> ParameterCounts:
    heads, hidden = Heads.of(keys), keys.size("hidden_size")
    if keys.model_type == "qwen2_moe":
        attention = heads.attention(qkv_bias=keys.flag("qkv_bias"))
        shared = gated_mlp(hidden, keys.size("shared_expert_intermediate_size")) + hidden
    else:
        bias = keys.flag("attention_bias")
        attention = heads.attention(qkv_bias=bias, out_bias=bias) + count_qk_norm(heads, "head")
        shared = 0
    experts, base = keys.amount("num_experts"), attention + 2 * hidden
    routed = experts * gated_mlp(hidden, keys.size("moe_intermediate_size"))
    sparse = Layer(base + experts * hidden + shared, routed)
    dense = Layer(base + gated_mlp(hidden, keys.size("intermediate_size")))
    return decoder(keys, [sparse if has_experts else dense for has_experts in _sparse_layers(keys)])


def _gpt_oss(keys: Keys) -> ParameterCounts:
    heads, experts, bias = Heads.of(keys), keys.size("num_local_experts"), keys.flag("attention_bias")
    hidden, width = heads.hidden, keys.size("intermediate_size")
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + heads.query  # one sink per head
    dense = attention + linear(hidden, experts, bias=True) + 2 * hidden
    return decoder(keys, Layer(dense, experts * gated_mlp(hidden, width, bias=True)))


def _olmoe(keys: Keys) -> ParameterCounts:
    heads, experts, bias = Heads.of(keys), keys.size("num_experts"), keys.flag("attention_bias")
    # its norms ignore head_dim
    norms = heads.hidden + heads.key_value * (heads.hidden // heads.query)
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + norms
    dense = attention + experts * heads.hidden + 2 * heads.hidden
    return decoder(keys, Layer(dense, experts * gated_mlp(heads.hidden, keys.size("intermediate_size"))))


def _granitemoe(keys: Keys) -> ParameterCounts:
    heads, experts, bias = Heads.of(keys), keys.size("num_local_experts"), keys.flag("attention_bias")
    dense = heads.attention(qkv_bias=bias, out_bias=bias) + experts * heads.hidden + 2 * heads.hidden
    return decoder(keys, Layer(dense, experts * gated_mlp(heads.hidden, keys.size("intermediate_size"))))


FORMULAS: Mapping[str, Formula] = {
    "gpt_oss": _gpt_oss,
    "granitemoe": _granitemoe,
    "mixtral": _mixtral,
    "olmoe": _olmoe,
    "phimoe": _phimoe,
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
}
