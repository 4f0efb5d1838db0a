"""Formulas of language models with state-space, linear-attention or convolution layers, by model type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.decoders import Formula, count_qk_norm
from compatcheck.architectures.experts import share_expert
from compatcheck.architectures.parts import (
    Heads,
    Layer,
    LinearLayer,
    ParameterCounts,
    decoder,
    expert_linears,
    gated_mlp,
    linear,
    mlp_linears,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.keys import Keys


def count_mamba(keys: Keys, prefix: str = "") -> int:
    """Count a Mamba mixer; its norms of time step, B and C, if any, are not in it; keys of hybrids start with ``prefix``."""
    hidden = keys.size("hidden_size")
    jamba = prefix == "mamba_"
    state = keys.size("mamba_d_state" if jamba else "state_size")
    kernel = keys.size("mamba_d_conv" if jamba else "conv_kernel")
    inner = int(keys.number(f"{prefix}expand") * hidden)
    rank = _time_step_rank(keys, "mamba_dt_rank" if jamba else "time_step_rank")
    bias = keys.flag("mamba_proj_bias" if jamba else "use_bias")
    convolution = inner * kernel + (inner if keys.flag("mamba_conv_bias" if jamba else "use_conv_bias") else 0)
    projections = linear(hidden, 2 * inner, bias) + linear(inner, rank + 2 * state) + linear(rank, inner, bias=True)
    return projections + convolution + linear(inner, hidden, bias) + inner * state + inner  # and A, D


def _time_step_rank(keys: Keys, name: str) -> int:
    value, _ = keys.find(name)
    return -(-keys.size("hidden_size") // 16) if value == "auto" else keys.size(name)


def _mamba(keys: Keys) -> ParameterCounts:
    return decoder(keys, Layer(count_mamba(keys) + keys.size("hidden_size")))


def _mamba2(keys: Keys) -> ParameterCounts:
    hidden, heads, state = keys.size("hidden_size"), keys.size("num_heads"), keys.size("state_size")
    inner, bias = int(keys.number("expand") * hidden), keys.flag("use_bias")
    mixed = inner + 2 * keys.size("n_groups") * state
    convolution = mixed * keys.size("conv_kernel") + (mixed if keys.flag("use_conv_bias") else 0)
    projections = linear(hidden, inner + mixed + heads, bias) + linear(inner, hidden, bias)
    return decoder(keys, Layer(projections + convolution + 3 * heads + inner + hidden))  # time-step bias, A, D; norms


def _jamba(keys: Keys) -> ParameterCounts:
    heads, hidden, layers = Heads.of(keys), keys.size("hidden_size"), keys.amount("num_hidden_layers")
    heads = heads._replace(width=hidden // heads.query) if not keys.has("head_dim") else heads
    rank, state = _time_step_rank(keys, "mamba_dt_rank"), keys.size("mamba_d_state")
    attention = heads.attention(), heads.linears()
    mamba = count_mamba(keys, "mamba_") + rank + 2 * state, _mamba_linears(keys, rank, state)
    width, experts = keys.size("intermediate_size"), keys.size("num_experts")
    mlp, dense_names = gated_mlp(hidden, width), mlp_linears("feed_forward", hidden, width)
    names = expert_linears(hidden, width, experts, path="feed_forward", router="router")
    every, offset = keys.size("attn_layer_period"), keys.amount("attn_layer_offset")
    sparse_every, sparse_offset = keys.size("expert_layer_period"), keys.amount("expert_layer_offset")
    stack = []
    for i in range(layers):
        mixer, linears = attention if i % every == offset else mamba
        dense = mixer + 2 * hidden
        if i % sparse_every == sparse_offset and experts > 1:
            stack.append(Layer(dense + experts * hidden, experts * mlp, (*linears, *names)))
        else:
            stack.append(Layer(dense + mlp, 0, (*linears, *dense_names)))
    return decoder(keys, stack)


def _mamba_linears(keys: Keys, rank: int, state: int) -> tuple[LinearLayer, ...]:
    """Return the projections of Jamba's mixer."""
    hidden, inner = keys.size("hidden_size"), int(keys.number("mamba_expand") * keys.size("hidden_size"))
    return (
        LinearLayer("mamba.in_proj", hidden, 2 * inner, 1),
        LinearLayer("mamba.x_proj", inner, rank + 2 * state, 1),
        LinearLayer("mamba.dt_proj", rank, inner, 1),
        LinearLayer("mamba.out_proj", inner, hidden, 1),
    )


def _list_layers(keys: Keys, every: int) -> list[bool]:
    """Tell for each layer whether it has full attention: as ``layer_types`` says, else each ``every``-th."""
    layers, types = keys.amount("num_hidden_layers"), keys.names("layer_types")
    if types is None:
        interval, _ = keys.find("full_attention_interval")
        every = keys.size("full_attention_interval") if interval is not None else every
        return [(i + 1) % every == 0 for i in range(layers)]
    return [types[i] == "full_attention" if i < len(types) else False for i in range(layers)]


def _gated_delta_net(keys: Keys) -> int:
    hidden = keys.size("hidden_size")
    key_heads, value_heads = keys.size("linear_num_key_heads"), keys.size("linear_num_value_heads")
    value_width = keys.size("linear_value_head_dim")
    key, value = key_heads * keys.size("linear_key_head_dim"), value_heads * value_width
    projections = linear(hidden, 2 * key + 2 * value) + linear(hidden, 2 * value_heads) + linear(value, hidden)
    return projections + (2 * key + value) * keys.size("linear_conv_kernel_dim") + 2 * value_heads + value_width


def _delta_net_linears(keys: Keys) -> tuple[LinearLayer, ...]:
    """Return the projections of a gated delta net: two that Qwen3.5 has cut into two each."""
    hidden = keys.size("hidden_size")
    key_heads, heads = keys.size("linear_num_key_heads"), keys.size("linear_num_value_heads")
    value, mixed = heads * keys.size("linear_value_head_dim"), 2 * key_heads * keys.size("linear_key_head_dim")
    if keys.model_type == "qwen3_next":
        into = {"qkvz": mixed + 2 * value, "ba": 2 * heads}
    else:
        into = {"qkv": mixed + value, "z": value, "b": heads, "a": heads}
    return (
        *(LinearLayer(f"linear_attn.in_proj_{name}", hidden, size, 1) for name, size in into.items()),
        LinearLayer("linear_attn.out_proj", value, hidden, 1),
    )


def _qwen3_hybrid(keys: Keys) -> ParameterCounts:
    """Count Qwen3-Next and Qwen3.5: gated delta nets, each fourth layer attention with an output gate in its query."""
    heads, hidden, bias = Heads.of(keys), keys.size("hidden_size"), keys.flag("attention_bias")
    gate = linear(hidden, heads.query * heads.width, bias)
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + gate + count_qk_norm(heads, "head")
    linear_attention = _gated_delta_net(keys), _delta_net_linears(keys)
    mixers = [(attention, heads.linears(gate=True)) if full else linear_attention for full in _list_layers(keys, 4)]
    if keys.model_type == "qwen3_5_text":
        wide = keys.size("intermediate_size")
        mlp, names = gated_mlp(hidden, wide) + 2 * hidden, mlp_linears("mlp", hidden, wide)
        return decoder(keys, [Layer(mixer + mlp, 0, (*linears, *names)) for mixer, linears in mixers])
    experts, width, wide = (
        keys.size(name) for name in ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size")
    )
    routed, shared = experts * gated_mlp(hidden, width), gated_mlp(hidden, wide) + hidden
    beside = (*expert_linears(hidden, width, experts), *share_expert(hidden, wide))
    dense_layers: tuple[int, ...] = ()
    step = 1
    if keys.model_type == "qwen3_next":
        dense_layers, step = tuple(keys.numbers("mlp_only_layers") or ()), keys.size("decoder_sparse_step")
    stack = []
    for i, (mixer, linears) in enumerate(mixers):
        if i not in dense_layers and (i + 1) % step == 0:
            stack.append(Layer(mixer + 2 * hidden + experts * hidden + shared, routed, (*linears, *beside)))
        else:
            wide = keys.size("intermediate_size")
            names = mlp_linears("mlp", hidden, wide)
            stack.append(Layer(mixer + 2 * hidden + gated_mlp(hidden, wide), 0, (*linears, *names)))
    return decoder(keys, stack)


def _minimax(keys: Keys) -> ParameterCounts:
    heads, hidden, experts = Heads.of(keys), keys.size("hidden_size"), keys.size("num_local_experts")
    inner = heads.query * heads.width
    lightning = linear(hidden, 3 * inner) + linear(inner, hidden) + linear(hidden, inner) + inner
    routed = experts * gated_mlp(hidden, keys.size("intermediate_size"))
    types = keys.names("layer_types")
    layers = keys.amount("num_hidden_layers")
    full = [(i + 1) % 2 == 1 for i in range(layers)] if types is None else [kind == "full_attention" for kind in types]
    base = experts * hidden + 2 * hidden
    return decoder(keys, [Layer((heads.attention() if f else lightning) + base, routed) for f in full[:layers]])


def _lfm2(keys: Keys) -> ParameterCounts:
    hidden, layers = keys.size("hidden_size"), keys.amount("num_hidden_layers")
    width = keys.optional("block_ff_dim") or keys.size("intermediate_size")
    if keys.flag("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        if keys.find("block_ffn_dim_multiplier")[0] is not None:
            multiple = keys.size("block_multiple_of")
            width = multiple * -(-int(keys.number("block_ffn_dim_multiplier") * width) // multiple)
    types = keys.names("layer_types")
    if types is None:
        chosen = keys.numbers("full_attn_idxs")
        full = [chosen is None or i in chosen for i in range(layers)]
    else:
        full = [kind == "full_attention" for kind in types[:layers]]
    mlp = gated_mlp(hidden, width) + 2 * hidden
    return decoder(keys, [Layer(_lfm2_mixer(keys, attention=f) + mlp) for f in full], tied=_lfm2_tied(keys))


def _lfm2_tied(keys: Keys) -> bool:
    return keys.flag("tie_embedding") if keys.has("tie_embedding") else keys.flag("tie_word_embeddings")


def _lfm2_mixer(keys: Keys, *, attention: bool) -> int:
    if attention:
        heads = Heads.of(keys)
        return heads.attention() + count_qk_norm(heads, "head")
    hidden, bias = keys.size("hidden_size"), keys.flag("conv_bias")
    kernel = hidden * keys.size("conv_L_cache") + (hidden if bias else 0)
    return kernel + linear(hidden, 3 * hidden, bias) + linear(hidden, hidden, bias)


def _lfm2_moe(keys: Keys) -> ParameterCounts:
    hidden, layers, types = keys.size("hidden_size"), keys.amount("num_hidden_layers"), keys.names("layer_types")
    if types is None:
        raise keys.error("layer_types", "a list of conv and full_attention")
    experts, first = keys.size("num_experts"), keys.amount("num_dense_layers")
    routed = experts * gated_mlp(hidden, keys.size("moe_intermediate_size"))
    stack = []
    for i, kind in enumerate(types[:layers]):
        mixer = _lfm2_mixer(keys, attention=kind == "full_attention") + 2 * hidden
        if i < first:
            stack.append(Layer(mixer + gated_mlp(hidden, keys.size("intermediate_size"))))
        else:
            stack.append(Layer(mixer + experts * hidden, routed))
    return decoder(keys, stack, tied=_lfm2_tied(keys))


FORMULAS: Mapping[str, Formula] = {
    "falcon_mamba": _mamba,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "minimax": _minimax,
    "qwen3_5_moe_text": _qwen3_hybrid,
    "qwen3_5_text": _qwen3_hybrid,
    "qwen3_next": _qwen3_hybrid,
}
