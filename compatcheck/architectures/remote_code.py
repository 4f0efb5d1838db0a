"""Formulas of language models whose classes lie in their own repositories, or in releases of transformers behind those measured.

Their configuration classes are not among the class defaults, so a file that leaves out a dimension is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from compatcheck.architectures.decoders import llama
from compatcheck.architectures.experts import FORMULAS as EXPERTS
from compatcheck.architectures.keys import ClassDefaults, class_defaults
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
from compatcheck.core.data_file import read_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.decoders import Formula
    from compatcheck.architectures.keys import Keys

_CHATGLM_ALIASES = {"num_hidden_layers": "num_layers", "padded_vocab_size": "vocab_size", "head_dim": "kv_channels"}
CONFIGURATIONS: Mapping[str, ClassDefaults] = {
    "baichuan": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "BaichuanForCausalLM"),
    "chatglm": ClassDefaults({}, _CHATGLM_ALIASES, {}, "ChatGLMModel"),
    "internlm": ClassDefaults({"tie_word_embeddings": False, "bias": True}, {}, {}, "InternLMForCausalLM"),
    "internlm2": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "InternLM2ForCausalLM"),
    "glm_moe_dsa": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "GlmMoeDsaForCausalLM"),
    "kimi_k2": cast("ClassDefaults", class_defaults("deepseek_v3")),  # its class is DeepSeek-V3's
    "mimo": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "MiMoForCausalLM"),
    "qwen": ClassDefaults({"tie_word_embeddings": False}, {"head_dim": "kv_channels"}, {}, "QWenLMHeadModel"),
}
"""Model type → what its configuration class says about keys that a file leaves out."""


def _has(keys: Keys, *names: str) -> bool:
    return all(map(keys.has, ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", *names)))


def _baichuan(keys: Keys) -> ParameterCounts | None:
    """Count Baichuan and Baichuan 2, which are Llama's with one weight for query, key and value."""
    return llama(keys) if _has(keys, "intermediate_size") else None


def _chatglm(keys: Keys) -> ParameterCounts | None:
    """Count ChatGLM-6B, which alone has ``inner_hidden_size``, and ChatGLM2, ChatGLM3 and GLM-4 (modeling_chatglm.py)."""
    if _has(keys, "inner_hidden_size"):
        heads = Heads.of(keys, width=False)
        mlp = plain_mlp(heads.hidden, keys.size("inner_hidden_size"), bias=True)
        block = heads.attention(qkv_bias=True, out_bias=True) + mlp + layer_norm(heads.hidden, 2)
        return decoder(keys, Layer(block), final_norm=layer_norm(heads.hidden), tied=True)
    if not _has(keys, "ffn_hidden_size", "kv_channels"):
        return None
    hidden, bias = keys.size("hidden_size"), keys.flag("add_bias_linear")
    query = keys.size("num_attention_heads") * keys.size("kv_channels")
    groups = (
        keys.size("multi_query_group_num") if keys.flag("multi_query_attention") else keys.size("num_attention_heads")
    )
    fused = query + 2 * groups * keys.size("kv_channels")
    attention = linear(hidden, fused, bias or keys.flag("add_qkv_bias")) + linear(query, hidden, bias)
    norm = hidden if keys.flag("rmsnorm", default=True) else layer_norm(hidden)
    block = attention + gated_mlp(hidden, keys.size("ffn_hidden_size"), bias) + 2 * norm
    final = norm if keys.flag("post_layer_norm", default=True) else 0
    return decoder(keys, Layer(block), final_norm=final, tied=False)


def _qwen(keys: Keys) -> ParameterCounts | None:
    """Count the first Qwen, whose MLP is half as wide as ``intermediate_size`` says (modeling_qwen.py)."""
    if not _has(keys, "intermediate_size"):
        return None
    heads, bias = Heads.of(keys), not keys.flag("no_bias", default=True)
    mlp = gated_mlp(heads.hidden, keys.size("intermediate_size") // 2, bias)
    return decoder(keys, Layer(heads.attention(qkv_bias=True, out_bias=bias) + mlp + 2 * heads.hidden))


def _internlm(keys: Keys) -> ParameterCounts | None:
    """Count InternLM, 2 and 2.5, which are Llama's; from 2 on one weight is for query, key and value (modeling_internlm2.py)."""
    return llama(keys, qkv_bias="bias", out_bias="bias") if _has(keys, "intermediate_size") else None


def _mimo(keys: Keys) -> ParameterCounts | None:
    """Count MiMo, which is Qwen2, without the layers that predict further tokens (XiaomiMiMo/MiMo modeling_mimo.py)."""
    return llama(keys, qkv_bias="attention_bias") if _has(keys, "intermediate_size") else None


def _glm_moe_dsa(keys: Keys) -> ParameterCounts | None:
    """Count GLM-5, DeepSeek-V3's with an indexer in each layer, or in those that choose for others (transformers 5.24.0)."""
    names = ("intermediate_size", "q_lora_rank", "index_n_heads", "index_head_dim", "n_routed_experts")
    counts = EXPERTS["deepseek_v3"](keys) if _has(keys, *names) else None
    if counts is None:
        return None
    hidden, heads, width = (keys.size(name) for name in ("hidden_size", "index_n_heads", "index_head_dim"))
    indexer = linear(keys.size("q_lora_rank"), heads * width) + linear(hidden, width + heads) + layer_norm(width)
    layers, each = keys.size("num_hidden_layers"), keys.amount("index_topk_freq", 1)
    first = keys.amount("index_skip_topk_offset", 0) if each > 1 else 0
    chosen = sum(layer < first or (layer - first) % each == each - 1 for layer in range(layers))
    more = chosen * indexer
    return counts._replace(total=counts.total + more, in_blocks=counts.in_blocks + more)


FORMULAS: Mapping[str, Formula] = {
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "internlm": _internlm,
    "internlm2": _internlm,
    "glm_moe_dsa": _glm_moe_dsa,
    "kimi_k2": EXPERTS["deepseek_v3"],
    "mimo": _mimo,
    "qwen": _qwen,
}

_TYPES = read_data(__file__, "model_types")
FUSED_QUERY_KEY_VALUE = frozenset(_TYPES["fused_query_key_value"])
"""Model types whose own code has one weight for query, key and value: ``W_pack``, ``query_key_value``, ``c_attn``."""
FUSED_GATE_UP = frozenset(_TYPES["fused_gate_up"])
"""Model types whose own code has one weight for gate and up projection: ``dense_h_to_4h``, ``gate_up_proj``."""
