"""Formulas of mixture-of-experts language models, by model type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.decoders import Formula, count_qk_norm
from compatcheck.architectures.parts import (
    GATED,
    Heads,
    Layer,
    LinearLayer,
    ParameterCounts,
    decoder,
    expert_linears,
    gated_mlp,
    layer_norm,
    linear,
    mlp_linears,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.keys import Keys


GRANITE_ROUTER = "router.layer"


def _has_disputed_width(heads: Heads) -> bool:
    """Tell whether ``head_dim`` is given to a type that declares none: releases before 5 then ignore it."""
    return heads.width != heads.hidden // heads.query


def _uniform(
    *,
    experts: str = "num_local_experts",
    bias: str = "attention_bias",
    qk_norm: str = "",
    shared: str = "",
    own_width: bool = True,
    names: str = "w1 w3 w2",
) -> Formula:
    """Return a formula for layers that are all alike: attention, a router, experts as wide as ``intermediate_size``, RMS norms.

    Args:
        experts: key of the number of experts in a layer.
        bias: key that says whether attention has a bias; empty where none has.
        qk_norm: as `count_qk_norm` has it.
        shared: key of the width of the MLP that every token passes; empty where there is none.
        own_width: whether ``head_dim`` counts; releases before 5 ignore it in types that declare none.
        names: linear layers of an expert.
    """

    def count(keys: Keys) -> ParameterCounts | None:
        heads, number, has_bias = Heads.of(keys), keys.size(experts), bool(bias) and keys.flag(bias)
        hidden = heads.hidden
        beside = gated_mlp(hidden, keys.amount(shared)) if shared else 0
        if not own_width and _has_disputed_width(heads):
            return None
        attention = heads.attention(qkv_bias=has_bias, out_bias=has_bias) + count_qk_norm(heads, qk_norm)
        dense = attention + number * hidden + 2 * hidden + beside
        width = keys.size("intermediate_size")
        path, router = "mlp" if names == GATED else "block_sparse_moe", "gate" if own_width else GRANITE_ROUTER
        linears = (*heads.linears(), *expert_linears(hidden, width, number, path=path, names=names, router=router))
        if shared:
            linears += granite_mlp(hidden, keys.amount(shared))
        return decoder(keys, Layer(dense, number * gated_mlp(hidden, width), linears))

    return count


def granite_mlp(hidden: int, width: int) -> tuple[LinearLayer, ...]:
    """Return the linear layers of the MLP that every token passes in Granite's models."""
    return (
        LinearLayer("shared_mlp.input_linear", hidden, 2 * width, 1),
        LinearLayer("shared_mlp.output_linear", width, hidden, 1),
    )


def _phimoe(keys: Keys) -> ParameterCounts | None:
    heads, experts, bias = Heads.of(keys), keys.size("num_local_experts"), keys.flag("attention_bias")
    hidden = heads.hidden
    if _has_disputed_width(heads):
        return None
    dense = heads.attention(qkv_bias=bias, out_bias=bias) + experts * hidden + layer_norm(hidden, 2)
    width = keys.size("intermediate_size")
    routed = expert_linears(hidden, width, experts, path="block_sparse_moe", names="w1 w3 w2")
    layer = Layer(dense, experts * gated_mlp(hidden, width), (*heads.linears(), *routed))
    return decoder(keys, layer, final_norm=layer_norm(hidden), head_bias=keys.flag("lm_head_bias"))


def _sparse_layers(keys: Keys) -> list[bool]:
    """Tell for each layer of a Qwen model whether it has experts."""
    dense, step = keys.numbers("mlp_only_layers") or (), keys.size("decoder_sparse_step")
    experts = keys.amount("num_experts")
    layers = range(keys.amount("num_hidden_layers"))
    return [i not in dense and experts > 0 and (i + 1) % step == 0 for i in layers]


def share_expert(hidden: int, width: int) -> tuple[LinearLayer, ...]:
    """Return the linear layers of Qwen's expert for every token, and of its gate."""
    return (*mlp_linears("mlp.shared_expert", hidden, width), LinearLayer("mlp.shared_expert_gate", hidden, 1, 1))


def _qwen_moe(keys: Keys) -> ParameterCounts:
    heads, hidden = Heads.of(keys), keys.size("hidden_size")
    beside: tuple[LinearLayer, ...] = ()
    if keys.model_type == "qwen2_moe":
        attention = heads.attention(qkv_bias=keys.flag("qkv_bias"))
        wide = keys.size("shared_expert_intermediate_size")
        shared, beside = gated_mlp(hidden, wide) + hidden, share_expert(hidden, wide)
    else:
        bias = keys.flag("attention_bias")
        attention = heads.attention(qkv_bias=bias, out_bias=bias) + count_qk_norm(heads, "head")
        shared = 0
    experts, base = keys.amount("num_experts"), attention + 2 * hidden
    width, wide = keys.size("moe_intermediate_size"), keys.size("intermediate_size")
    linears = (*heads.linears(), *expert_linears(hidden, width, experts), *beside)
    sparse = Layer(base + experts * hidden + shared, experts * gated_mlp(hidden, width), linears)
    dense = Layer(base + gated_mlp(hidden, wide), 0, (*heads.linears(), *mlp_linears("mlp", hidden, wide)))
    return decoder(keys, [sparse if has_experts else dense for has_experts in _sparse_layers(keys)])


def _gpt_oss(keys: Keys) -> ParameterCounts:
    heads, experts, bias = Heads.of(keys), keys.size("num_local_experts"), keys.flag("attention_bias")
    hidden, width = heads.hidden, keys.size("intermediate_size")
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + heads.query  # one sink per head
    dense = attention + linear(hidden, experts, bias=True) + 2 * hidden
    linears = (*heads.linears(), *expert_linears(hidden, width, experts, router="router"))
    return decoder(keys, Layer(dense, experts * gated_mlp(hidden, width, bias=True), linears))


def _olmoe(keys: Keys) -> ParameterCounts:
    heads, experts, bias = Heads.of(keys), keys.size("num_experts"), keys.flag("attention_bias")
    # its norms ignore head_dim
    norms = heads.hidden + heads.key_value * (heads.hidden // heads.query)
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + norms
    dense = attention + experts * heads.hidden + 2 * heads.hidden
    width = keys.size("intermediate_size")
    linears = (*heads.linears(), *expert_linears(heads.hidden, width, experts))
    return decoder(keys, Layer(dense, experts * gated_mlp(heads.hidden, width), linears))


def attend_latent(keys: Keys) -> int:
    """Count multi-head latent attention with its two inner norms (DeepSeek-V2 and later)."""
    hidden, heads, bias = keys.size("hidden_size"), keys.size("num_attention_heads"), keys.flag("attention_bias")
    rope, plain, value = keys.size("qk_rope_head_dim"), keys.size("qk_nope_head_dim"), keys.size("v_head_dim")
    compressed, rank = keys.size("kv_lora_rank"), keys.optional("q_lora_rank")
    if rank is None:
        query = linear(hidden, heads * (plain + rope))
    else:
        query = linear(hidden, rank, bias) + rank + linear(rank, heads * (plain + rope))
    key_value = linear(hidden, compressed + rope, bias) + compressed + linear(compressed, heads * (plain + value))
    return query + key_value + linear(heads * value, hidden, bias)


def list_latent(keys: Keys) -> tuple[LinearLayer, ...]:
    """Return the projections of `attend_latent`."""
    hidden, heads, rope = keys.size("hidden_size"), keys.size("num_attention_heads"), keys.size("qk_rope_head_dim")
    plain, value, compressed = keys.size("qk_nope_head_dim"), keys.size("v_head_dim"), keys.size("kv_lora_rank")
    rank, query = keys.optional("q_lora_rank"), heads * (plain + rope)
    queries = {"q_proj": (hidden, query)} if rank is None else {"q_a_proj": (hidden, rank), "q_b_proj": (rank, query)}
    others = {
        "kv_a_proj_with_mqa": (hidden, compressed + rope),
        "kv_b_proj": (compressed, heads * (plain + value)),
        "o_proj": (heads * value, hidden),
    }
    return tuple(LinearLayer(f"self_attn.{name}", *shape, 1) for name, shape in (queries | others).items())


def _deepseek(keys: Keys, attention: int, projections: tuple[LinearLayer, ...]) -> ParameterCounts | None:
    """Count dense layers first, then layers of routed and shared experts."""
    hidden, width = keys.size("hidden_size"), keys.size("moe_intermediate_size")
    experts, shared = keys.optional("n_routed_experts"), keys.amount("n_shared_experts", 0)
    if not experts or not shared:
        return None
    base = attention + 2 * hidden
    router = experts * hidden
    beside = mlp_linears("mlp.shared_experts", hidden, width * shared)
    linears = (*projections, *expert_linears(hidden, width, experts), *beside)
    sparse = Layer(base + router + gated_mlp(hidden, width * shared), experts * gated_mlp(hidden, width), linears)
    wide = keys.size("intermediate_size")
    dense = Layer(base + gated_mlp(hidden, wide), 0, (*projections, *mlp_linears("mlp", hidden, wide)))
    types, layers = keys.names("mlp_layer_types"), keys.amount("num_hidden_layers")
    if keys.has("mlp_layer_types") or keys.model_type == "glm4_moe_lite":
        types = ["dense", *["sparse"] * (layers - 1)] if types is None else types
        return decoder(keys, [sparse if kind == "sparse" else dense for kind in types[:layers]])
    first = min(keys.amount("first_k_dense_replace", 0), layers)
    return decoder(keys, [dense] * first + [sparse] * (layers - first))


def _deepseek_v2(keys: Keys) -> ParameterCounts | None:
    if keys.flag("mlp_bias"):
        return None  # releases differ in whether the routed experts then have biases
    return _deepseek(keys, attend_latent(keys), list_latent(keys))


def _deepseek_v3(keys: Keys) -> ParameterCounts | None:
    return _deepseek(keys, attend_latent(keys), list_latent(keys))


def _glm4_moe(keys: Keys) -> ParameterCounts | None:
    heads = Heads.of(keys)
    norms = count_qk_norm(heads, "head" if keys.flag("use_qk_norm") else "")
    return _deepseek(keys, heads.attention(qkv_bias=keys.flag("attention_bias")) + norms, heads.linears())


def _dots1(keys: Keys) -> ParameterCounts | None:
    heads, bias = Heads.of(keys), keys.flag("attention_bias")
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + count_qk_norm(heads, "head")
    return _deepseek(keys, attention, heads.linears())


def _dbrx(keys: Keys) -> ParameterCounts | None:
    attention, ffn = keys.mapping("attn_config"), keys.mapping("ffn_config")
    hidden, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    key_value = attention.size("kv_n_heads")
    if "d_model" not in keys.config and keys.has("hidden_size"):
        return None  # its experts then keep the default width
    experts, width = ffn.size("moe_num_experts"), ffn.size("ffn_hidden_size")
    qkv = linear(hidden, hidden + 2 * key_value * (hidden // heads))
    dense = qkv + linear(hidden, hidden) + experts * hidden + 2 * hidden
    return decoder(keys, Layer(dense, experts * gated_mlp(hidden, width)))


def _llama4(keys: Keys) -> ParameterCounts | None:
    heads, hidden = Heads.of(keys), keys.size("hidden_size")
    if keys.flag("attention_bias"):
        return None  # releases differ in which projections then have a bias
    experts, layers = keys.size("num_local_experts"), keys.amount("num_hidden_layers")
    base = heads.attention() + 2 * hidden
    expert = gated_mlp(hidden, keys.size("intermediate_size"))
    sparse = Layer(base + experts * hidden + expert, experts * expert)
    dense = Layer(base + gated_mlp(hidden, keys.size("intermediate_size_mlp")))
    step, given = keys.size("interleave_moe_layer_step"), keys.numbers("moe_layers")
    chosen = set(range(step - 1, layers, step) if given is None else given)
    return decoder(keys, [sparse if i in chosen else dense for i in range(layers)])


def _ernie4_5_moe(keys: Keys) -> ParameterCounts | None:
    heads, bias, hidden = Heads.of(keys), keys.flag("use_bias"), keys.size("hidden_size")
    experts, layers = keys.size("moe_num_experts"), keys.amount("num_hidden_layers")
    width, shared = keys.size("moe_intermediate_size"), keys.amount("moe_num_shared_experts", 0)
    if bias:
        return None  # releases differ in whether experts then have biases
    base = heads.attention() + 2 * hidden
    # a bias that corrects the scores, one per expert, is a parameter here
    extra = experts * hidden + experts + (gated_mlp(hidden, width * shared) if shared else 0)
    beside = mlp_linears("mlp.shared_experts", hidden, width * shared) if shared else ()
    linears, wide = (*heads.linears(), *expert_linears(hidden, width, experts), *beside), keys.size("intermediate_size")
    sparse = Layer(base + extra, experts * gated_mlp(hidden, width), linears)
    dense = Layer(base + gated_mlp(hidden, wide), 0, (*heads.linears(), *mlp_linears("mlp", hidden, wide)))
    start, every = keys.amount("moe_layer_start_index"), keys.size("moe_layer_interval")
    end, _ = keys.find("moe_layer_end_index")
    if not isinstance(end, int) or isinstance(end, bool) or end < -1:
        raise keys.error("moe_layer_end_index", "a layer number or -1")
    end = layers - 1 if end == -1 else end
    return decoder(keys, [sparse if (i + 1) % every == 0 and start <= i <= end else dense for i in range(layers)])


def _hunyuan_v1_moe(keys: Keys) -> ParameterCounts | None:
    heads, bias, hidden = Heads.of(keys), keys.flag("attention_bias"), keys.size("hidden_size")
    if not isinstance(keys.find("num_experts")[0], int):
        return None  # a list: another number in each layer
    experts, width = keys.size("num_experts"), keys.size("intermediate_size")
    mlp = gated_mlp(hidden, width)
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + count_qk_norm(heads, "head")
    routed = expert_linears(hidden, width, experts, router="gate.wg")
    linears = (*heads.linears(), *routed, *mlp_linears("mlp.shared_mlp", hidden, width))
    return decoder(keys, Layer(attention + 2 * hidden + experts * hidden + mlp, experts * mlp, linears))


def _gemma4_text(keys: Keys) -> ParameterCounts:
    """Count Gemma 4.

    Its layers of full attention have wider heads; the last layers take their keys and values from earlier ones; experts stand
    beside the MLP, and every layer may have an embedding of its own.
    """
    heads, hidden, layers = Heads.of(keys), keys.size("hidden_size"), keys.amount("num_hidden_layers")
    types, bias, one = keys.names("layer_types"), keys.flag("attention_bias"), keys.flag("attention_k_eq_v")
    if types is None:
        types = [("sliding_attention", "full_attention")[(i + 1) % 6 == 0] for i in range(layers)]
    full = [i == layers - 1 or "full_attention" in types[i : i + 1] for i in range(layers)]
    key_value = (keys.optional("num_global_key_value_heads") if one else None) or heads.key_value
    wide = heads._replace(width=keys.optional("global_head_dim") or 512, key_value=key_value)
    own = layers - keys.amount("num_kv_shared_layers")
    beside, routed, experts = 4 * hidden, 0, keys.optional("num_experts") or 0
    if keys.flag("enable_moe_block"):
        beside += (experts + 4) * hidden + experts  # a router with two scales, three norms
        routed = experts * gated_mlp(hidden, keys.size("moe_intermediate_size"))
    embedded = keys.amount("hidden_size_per_layer_input", 0)
    beside += 2 * linear(hidden, embedded) + hidden if embedded else 0
    stack = []
    for i in range(layers):
        shape = wide if full[i] else heads
        width = shape.key_value * shape.width
        attention = shape.attention(qkv_bias=bias, out_bias=bias) + 2 * shape.width
        if i >= own:
            attention -= 2 * linear(hidden, width, bias) + shape.width
        elif one and full[i]:
            attention -= linear(hidden, width, bias)
        twice = 2 if keys.flag("use_double_wide_mlp") and i >= own else 1
        stack.append(Layer(attention + gated_mlp(hidden, twice * keys.size("intermediate_size")) + beside, routed))
    packed = layers * embedded
    other = packed * (keys.size("vocab_size_per_layer_input") + hidden) + embedded if embedded else 0
    return decoder(keys, stack, final_norm=hidden, other=other)


FORMULAS: Mapping[str, Formula] = {
    "dbrx": _dbrx,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "dots1": _dots1,
    "ernie4_5_moe": _ernie4_5_moe,
    "gemma4_text": _gemma4_text,
    "flex_olmo": _uniform(experts="num_experts", qk_norm="full", names=GATED),
    "glm4_moe": _glm4_moe,
    "glm4_moe_lite": _deepseek_v3,
    "granitemoeshared": _uniform(shared="shared_intermediate_size", own_width=False),
    "hunyuan_v1_moe": _hunyuan_v1_moe,
    "llama4_text": _llama4,
    "minimax_m2": _uniform(bias="", qk_norm="full"),
    "gpt_oss": _gpt_oss,
    "granitemoe": _uniform(own_width=False),
    "mixtral": _uniform(bias=""),
    "olmoe": _olmoe,
    "phimoe": _phimoe,
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
}
