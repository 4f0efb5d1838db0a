"""Formulas of causal language models with one kind of attention, by model type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compatcheck.architectures.keys import Keys
from compatcheck.architectures.parts import (
    Heads,
    Layer,
    ParameterCounts,
    decoder,
    gated_mlp,
    layer_norm,
    linear,
    plain_mlp,
)

Formula = Callable[[Keys], ParameterCounts | None]
"""Counts a model; None when this configuration of the type is one the formula does not cover."""


def llama(  # noqa: PLR0913 - one argument per way in which the family differs
    keys: Keys,
    *,
    qkv_bias: bool | str = False,
    out_bias: bool | str = False,
    mlp_bias: bool | str = False,
    norms: int = 2,
    qk_norm: str = "",
    gated: bool = True,
    head_dim: bool = True,
    extra: int = 0,
) -> ParameterCounts:
    """Count the Llama family: RMS norms, separate projections, gated MLP; what differs is an argument.

    Args:
        keys: the model's keys.
        qkv_bias: whether query, key and value have a bias, or the key that says so.
        out_bias: the same for the output projection.
        mlp_bias: the same for the MLP.
        norms: norms of the hidden size per block.
        qk_norm: ``head`` (one weight per position in a head), ``full`` (per query and key feature) or none.
        gated: whether the MLP has a gate.
        head_dim: whether the model reads ``head_dim``.
        extra: further parameters per block.
    """
    heads = Heads.of(keys, width=head_dim)
    attention = heads.attention(qkv_bias=_resolve(keys, qkv_bias), out_bias=_resolve(keys, out_bias))
    mlp = gated_mlp if gated else plain_mlp
    feed_forward = mlp(heads.hidden, keys.size("intermediate_size"), _resolve(keys, mlp_bias))
    block = attention + count_qk_norm(heads, qk_norm) + feed_forward + norms * heads.hidden + extra
    return decoder(keys, Layer(block))


def _resolve(keys: Keys, flag: bool | str) -> bool:  # noqa: FBT001 - a value or the key that holds it
    return keys.flag(flag) if isinstance(flag, str) else flag


def count_qk_norm(heads: Heads, kind: str) -> int:
    """Count the norms of queries and keys."""
    if kind == "head":
        return 2 * heads.width
    return (heads.query + heads.key_value) * heads.width if kind == "full" else 0


def _family(**options: object) -> Formula:
    return lambda keys: llama(keys, **options)  # type: ignore[arg-type]


def _gpt(  # noqa: PLR0913 - as for `llama`
    *,
    width: str = "intermediate_size",
    fourfold: bool = False,
    grouped: bool = False,
    qkv_bias: bool | str = True,
    out_bias: bool | str = True,
    mlp_bias: bool | str = True,
    norms: int = 2,
    qk_norm: str = "",
    positions: int | None = None,
    head_bias: bool = False,
) -> Formula:
    """Return a formula of the GPT family: layer norms with weight and bias, plain MLP; what differs is an argument.

    Args:
        width: key of the width of the MLP.
        fourfold: whether it is four times the hidden size where nothing is said.
        grouped: whether the model reads the number of key and value heads and the width of a head.
        qkv_bias: as for `llama`, like the next two.
        out_bias: see there.
        mlp_bias: see there.
        norms: norms of the hidden size per block.
        qk_norm: key that says whether queries and keys have a norm of one head's width.
        positions: rows of learned positions before the first one; None without any.
        head_bias: whether the head has a bias.
    """

    def count(keys: Keys) -> ParameterCounts:
        hidden = keys.size("hidden_size")
        inner = keys.optional(width) or 4 * hidden if fourfold else keys.size(width)
        heads = Heads.of(keys) if grouped else Heads(hidden, 1, 1, hidden)
        attention = heads.attention(qkv_bias=_resolve(keys, qkv_bias), out_bias=_resolve(keys, out_bias))
        block = attention + plain_mlp(hidden, inner, _resolve(keys, mlp_bias)) + layer_norm(hidden, norms)
        block += layer_norm(hidden // keys.size("num_attention_heads"), 2) if qk_norm and keys.flag(qk_norm) else 0
        learned = 0 if positions is None else (keys.size("max_position_embeddings") + positions) * hidden
        return decoder(keys, Layer(block), final_norm=layer_norm(hidden), other=learned, head_bias=head_bias)

    return count


def _gpt2(keys: Keys) -> ParameterCounts:
    hidden = keys.size("hidden_size")
    inner = keys.optional("n_inner") or 4 * hidden
    block = 4 * linear(hidden, hidden, bias=True) + plain_mlp(hidden, inner, bias=True) + layer_norm(hidden, 2)
    if keys.flag("add_cross_attention"):
        block += 4 * linear(hidden, hidden, bias=True) + layer_norm(hidden)
    positions = keys.size("max_position_embeddings") * hidden
    return decoder(keys, Layer(block), final_norm=layer_norm(hidden), other=positions)


def _gpt_bigcode(keys: Keys) -> ParameterCounts | None:
    hidden, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    if keys.flag("add_cross_attention"):
        return None
    key_value = hidden // heads if keys.flag("multi_query") else hidden
    attention = linear(hidden, hidden + 2 * key_value, bias=True) + linear(hidden, hidden, bias=True)
    block = attention + plain_mlp(hidden, keys.optional("n_inner") or 4 * hidden, bias=True) + layer_norm(hidden, 2)
    positions = keys.size("max_position_embeddings") * hidden
    return decoder(keys, Layer(block), final_norm=layer_norm(hidden), other=positions)


def _opt(keys: Keys) -> ParameterCounts:
    hidden, bias = keys.size("hidden_size"), keys.flag("enable_bias")
    width, vocab = keys.optional("word_embed_proj_dim") or hidden, keys.size("vocab_size")
    norm = layer_norm(hidden) if keys.flag("layer_norm_elementwise_affine") else 0
    block = 4 * linear(hidden, hidden, bias) + plain_mlp(hidden, keys.size("ffn_dim"), bias) + 2 * norm
    final = keys.flag("do_layer_norm_before") and not keys.flag("_remove_final_layer_norm")
    # two rows are reserved before the first position
    other = (keys.size("max_position_embeddings") + 2) * hidden + (0 if width == hidden else 2 * hidden * width)
    counts = decoder(keys, Layer(block), final_norm=norm if final else 0, other=other, tied=True)
    lm_head = 0 if keys.flag("tie_word_embeddings") else width * vocab
    total = counts.total - counts.embedding + width * vocab + lm_head
    return counts._replace(embedding=width * vocab, lm_head=lm_head, total=total)


def _bloom(keys: Keys) -> ParameterCounts:
    hidden = keys.optional("n_embed") or keys.size("hidden_size")
    block = 4 * linear(hidden, hidden, bias=True) + plain_mlp(hidden, 4 * hidden, bias=True) + layer_norm(hidden, 2)
    return decoder(keys, Layer(block), final_norm=layer_norm(hidden), other=layer_norm(hidden))


def _falcon(keys: Keys) -> ParameterCounts:
    hidden, heads, bias = keys.size("hidden_size"), keys.size("num_attention_heads"), keys.flag("bias")
    width = hidden // heads
    if keys.flag("new_decoder_architecture"):
        qkv = (2 * (keys.optional("num_kv_heads") or heads) + heads) * width
    else:
        qkv = hidden + 2 * width if keys.flag("multi_query") else 3 * hidden
    mlp = plain_mlp(hidden, keys.optional("ffn_hidden_size") or 4 * hidden, bias)
    norms = 2
    if keys.flag("parallel_attn"):
        given = keys.optional("num_ln_in_parallel_attn")
        norms = 2 if given == 2 or (given is None and keys.flag("new_decoder_architecture")) else 1
    block = linear(hidden, qkv, bias) + linear(hidden, hidden, bias) + mlp + layer_norm(hidden, norms)
    return decoder(keys, Layer(block), final_norm=layer_norm(hidden))


def _mpt(keys: Keys) -> ParameterCounts:
    hidden = keys.size("hidden_size")
    return decoder(keys, Layer(4 * linear(hidden, hidden) + plain_mlp(hidden, 4 * hidden) + 2 * hidden))


def _stablelm(keys: Keys) -> ParameterCounts:
    heads = Heads.of(keys, width=False)
    hidden = heads.hidden
    block = heads.attention(qkv_bias=keys.flag("use_qkv_bias")) + gated_mlp(hidden, keys.size("intermediate_size"))
    block += layer_norm(hidden, 1 if keys.flag("use_parallel_residual") else 2)
    block += count_qk_norm(heads, "full" if keys.flag("qk_layernorm") else "")
    return decoder(keys, Layer(block), final_norm=layer_norm(hidden))


def _cohere(keys: Keys) -> ParameterCounts:
    qk_norm = "full" if keys.flag("use_qk_norm") else ""
    return llama(keys, qkv_bias="attention_bias", out_bias="attention_bias", norms=1, qk_norm=qk_norm)


def _olmo(keys: Keys) -> ParameterCounts:
    counts = llama(keys, qkv_bias="attention_bias", out_bias="attention_bias", norms=0)
    hidden = keys.size("hidden_size")  # its norms have no parameters
    return counts._replace(other=counts.other - hidden, total=counts.total - hidden)


def _xglm(keys: Keys) -> ParameterCounts | None:
    return None if keys.flag("add_cross_attention") else _gpt(width="ffn_dim")(keys)


def _helium(keys: Keys) -> ParameterCounts:
    heads = Heads.of(keys)
    # its output projection is square whatever the width of a head
    square = (heads.hidden - heads.query * heads.width) * heads.hidden
    return llama(keys, qkv_bias="attention_bias", mlp_bias="mlp_bias", extra=square)


def _apertus(keys: Keys) -> ParameterCounts:
    # two learned scalars in the activation of each MLP
    bias = "attention_bias"
    return llama(keys, qkv_bias=bias, out_bias=bias, qk_norm="head", gated=False, extra=2)


def _bitnet(keys: Keys) -> ParameterCounts:
    extra = keys.size("hidden_size") + keys.size("intermediate_size")
    return llama(keys, qkv_bias="attention_bias", out_bias="attention_bias", extra=extra)


def _diffllama(keys: Keys) -> ParameterCounts:
    return llama(keys, qkv_bias="attention_bias", out_bias="attention_bias", extra=4 * Heads.of(keys).width)


FORMULAS: Mapping[str, Formula] = {
    "apertus": _apertus,
    "arcee": _family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias", gated=False),
    "biogpt": _gpt(positions=2),  # two rows are reserved before the first position
    "bitnet": _bitnet,
    "codegen": _gpt(width="n_inner", fourfold=True, qkv_bias=False, out_bias=False, norms=1, head_bias=True),
    "cwm": _family(mlp_bias="mlp_bias"),
    "diffllama": _diffllama,
    "ernie4_5": _family(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    "exaone4": _family(qk_norm="head"),
    "glm": _family(qkv_bias="attention_bias"),
    "glm4": _family(qkv_bias="attention_bias", norms=4),
    "helium": _helium,
    "hunyuan_v1_dense": _family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"),
    "internlm3": _family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "ministral": _family(),
    "ministral3": _family(),
    "nemotron": _gpt(grouped=True, qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "olmo3": _family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="full"),
    "persimmon": _gpt(qk_norm="qk_layernorm"),
    "seed_oss": _family(qkv_bias="attention_bias", out_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "smollm3": _family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "vaultgemma": _family(qkv_bias="attention_bias", out_bias="attention_bias"),
    "xglm": _xglm,
    "bloom": _bloom,
    "cohere": _cohere,
    "cohere2": _family(qkv_bias="attention_bias", out_bias="attention_bias", norms=1),
    "falcon": _falcon,
    "gemma": _family(qkv_bias="attention_bias", out_bias="attention_bias"),
    "gemma2": _family(qkv_bias="attention_bias", out_bias="attention_bias", norms=4),
    "gemma3_text": _family(qkv_bias="attention_bias", out_bias="attention_bias", norms=4, qk_norm="head"),
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neo": _gpt(fourfold=True, qkv_bias=False, positions=0),
    "gpt_neox": _gpt(qkv_bias="attention_bias", out_bias="attention_bias"),
    "gptj": _gpt(width="n_inner", fourfold=True, qkv_bias=False, out_bias=False, norms=1, head_bias=True),
    "granite": _family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "llama": _family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": _family(),
    "mpt": _mpt,
    "olmo": _olmo,
    "olmo2": _family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="full"),
    "opt": _opt,
    "phi": _gpt(grouped=True, norms=1, qk_norm="qk_layernorm", head_bias=True),
    "phi3": _family(),
    "qwen2": _family(qkv_bias=True),
    "qwen3": _family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"),
    "stablelm": _stablelm,
    "starcoder2": _gpt(grouped=True, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
}
