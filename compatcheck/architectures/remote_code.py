"""Formulas of language models whose classes lie in their own repositories, or in releases of transformers behind those measured.

Their configuration classes are not among the class defaults, so a file that leaves out a dimension is not counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from compatcheck.architectures.decoders import llama
from compatcheck.architectures.experts import FORMULAS as EXPERTS
from compatcheck.architectures.keys import ClassDefaults, class_defaults
from compatcheck.architectures.parts import (
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
    plain_mlp,
)
from compatcheck.core.data_file import read_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.architectures.decoders import Formula
    from compatcheck.architectures.keys import Keys

_DEEPSEEK_V3 = cast("ClassDefaults", class_defaults("deepseek_v3"))
_KIMI_TOWER = ClassDefaults(
    {},
    {
        "vt_hidden_size": "hidden_size",
        "vt_intermediate_size": "intermediate_size",
        "vt_num_hidden_layers": "num_hidden_layers",
        "init_pos_emb_height": "pos_emb_height",
        "init_pos_emb_width": "pos_emb_width",
    },
    {},
)
"""Names that the file's own class has for what transformers calls as elsewhere."""
_CHATGLM_ALIASES = {"num_hidden_layers": "num_layers", "padded_vocab_size": "vocab_size", "head_dim": "kv_channels"}
CONFIGURATIONS: Mapping[str, ClassDefaults] = {
    "baichuan": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "BaichuanForCausalLM"),
    "chatglm": ClassDefaults({}, _CHATGLM_ALIASES, {}, "ChatGLMModel"),
    "internlm": ClassDefaults({"tie_word_embeddings": False, "bias": True}, {}, {}, "InternLMForCausalLM"),
    "internlm2": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "InternLM2ForCausalLM"),
    "deepseek_v32": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "DeepseekV32ForCausalLM"),
    "glm_moe_dsa": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "GlmMoeDsaForCausalLM"),
    "kimi_k2": _DEEPSEEK_V3,  # its class is DeepSeek-V3's
    "kimi_k25": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "KimiK25ForConditionalGeneration"),
    "mimo": ClassDefaults({"tie_word_embeddings": False}, {}, {}, "MiMoForCausalLM"),
    "nemotron_h": ClassDefaults(
        {"tie_word_embeddings": False, "use_conv_bias": True},
        {"attention_head_dim": "head_dim", "layer_types": "layers_block_type"},
        {},
        "NemotronHForCausalLM",
    ),
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
    """Count DeepSeek-V3.2 and GLM-5: DeepSeek-V3 with an indexer in each layer, or in those that choose for others (5.24.0)."""
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
    # layers of the indexer are not listed
    return counts._replace(total=counts.total + more, in_blocks=counts.in_blocks + more, linears=())


_PLAIN = "up_proj down_proj"
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Blocks in ``hybrid_override_pattern`` (NemotronHConfig)."""
_KINDS = {"full_attention": "attention", "linear_attention": "mamba"}


def list_blocks(keys: Keys) -> tuple[str, ...]:
    """Return what each block of a Nemotron-H is, in the words of its first files; none where that is not told."""
    kinds = keys.names("layers_block_type")
    if kinds is None:
        return tuple(_LETTERS.get(letter, letter) for letter in keys.text("hybrid_override_pattern") or "")
    return tuple(_KINDS.get(kind, kind) for kind in kinds)


def _nemotron_h(keys: Keys) -> ParameterCounts | None:
    """Count Nemotron-H and Nemotron 3: each block is a Mamba 2 mixer, attention, an MLP or experts (transformers 5.23.0)."""
    blocks = list_blocks(keys)
    names = (
        "hidden_size",
        "vocab_size",
        "num_attention_heads",
        "num_key_value_heads",
        "mamba_num_heads",
        "mamba_head_dim",
    )
    if not blocks or not all(map(keys.has, names)) or any(kind not in _NEMOTRON for kind in blocks):
        return None
    hidden = keys.size("hidden_size")
    layers = {kind: _NEMOTRON[kind](keys, hidden) for kind in {*blocks}}
    return decoder(keys, [layers[kind]._replace(dense=layers[kind].dense + hidden) for kind in blocks])


def _nemotron_mixer(keys: Keys, hidden: int) -> Layer:
    heads, bias = keys.size("mamba_num_heads"), keys.flag("use_bias")
    inner = heads * keys.size("mamba_head_dim")
    mixed = inner + 2 * keys.size("n_groups") * keys.size("ssm_state_size")
    convolution = mixed * keys.size("conv_kernel") + (mixed if keys.flag("use_conv_bias") else 0)
    projections = linear(hidden, inner + mixed + heads, bias) + linear(inner, hidden, bias)
    linears = (
        LinearLayer("mixer.in_proj", hidden, inner + mixed + heads, 1),
        LinearLayer("mixer.out_proj", inner, hidden, 1),
    )
    return Layer(projections + convolution + 3 * heads + inner, 0, linears)


def _nemotron_experts(keys: Keys, hidden: int) -> Layer:
    experts, width, bias = keys.size("n_routed_experts"), keys.size("moe_intermediate_size"), keys.flag("mlp_bias")
    shared = plain_mlp(hidden, keys.size("moe_shared_expert_intermediate_size"), bias)
    latent = keys.optional("moe_latent_size")
    between = 0 if latent is None else linear(hidden, latent, bias) + linear(latent, hidden, bias)
    routed = experts * 2 * width * (latent or hidden)
    if latent is not None:
        return Layer(experts * hidden + shared + between, routed)
    beside = mlp_linears("mixer.shared_experts", hidden, keys.size("moe_shared_expert_intermediate_size"), names=_PLAIN)
    linears = (*expert_linears(hidden, width, experts, path="mixer", names=_PLAIN), *beside)
    return Layer(experts * hidden + shared + between, routed, linears)


def _nemotron_attention(keys: Keys, _: int) -> Layer:
    heads = Heads.of(keys)
    return Layer(
        heads.attention(),
        0,
        tuple(one._replace(path=one.path.replace("self_attn", "mixer")) for one in heads.linears()),
    )


def _nemotron_mlp(keys: Keys, hidden: int) -> Layer:
    width = keys.size("intermediate_size")
    return Layer(plain_mlp(hidden, width, keys.flag("mlp_bias")), 0, mlp_linears("mixer", hidden, width, names=_PLAIN))


_NEMOTRON: Mapping[str, Callable[[Keys, int], Layer]] = {
    "attention": _nemotron_attention,
    "mamba": _nemotron_mixer,
    "mlp": _nemotron_mlp,
    "moe": _nemotron_experts,
}
"""What a block holds beside its norm."""


def _kimi_k25(keys: Keys) -> ParameterCounts | None:
    """Count Kimi K2.5: Kimi K2 behind a tower and its projector (transformers 5.24.0, and the file's own class)."""
    text, vision = (
        keys.nested(name, part) for name, part in (("text_config", _DEEPSEEK_V3), ("vision_config", _KIMI_TOWER))
    )
    merged = vision.numbers("merge_kernel_size")
    counts = EXPERTS["deepseek_v3"](text) if _has(text, "n_routed_experts") else None
    if counts is None or merged is None or not vision.has("hidden_size") or keys.flag("tie_word_embeddings"):
        return None
    hidden, layers = vision.size("hidden_size"), vision.amount("num_hidden_layers")
    width = hidden * math.prod(merged)
    block = 4 * linear(hidden, hidden, bias=True) + plain_mlp(hidden, vision.size("intermediate_size"), bias=True)
    patches = 3 * vision.size("patch_size") ** 2 * hidden + hidden
    positions = vision.size("pos_emb_height") * vision.size("pos_emb_width") * hidden
    projector = (
        layer_norm(hidden) + linear(width, width, bias=True) + linear(width, text.size("hidden_size"), bias=True)
    )
    tower = patches + positions + layers * (block + layer_norm(hidden, 2)) + layer_norm(hidden) + projector
    return counts._replace(vision=tower, total=counts.total + tower, linears=())


FORMULAS: Mapping[str, Formula] = {
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "internlm": _internlm,
    "internlm2": _internlm,
    "deepseek_v32": _glm_moe_dsa,
    "glm_moe_dsa": _glm_moe_dsa,
    "kimi_k2": EXPERTS["deepseek_v3"],
    "kimi_k25": _kimi_k25,
    "nemotron_h": _nemotron_h,
    "mimo": _mimo,
    "qwen": _qwen,
}

_TYPES = read_data(__file__, "model_types")
FUSED_QUERY_KEY_VALUE = frozenset(_TYPES["fused_query_key_value"])
"""Model types whose own code has one weight for query, key and value: ``W_pack``, ``query_key_value``, ``c_attn``."""
FUSED_GATE_UP = frozenset(_TYPES["fused_gate_up"])
"""Model types whose own code has one weight for gate and up projection: ``dense_h_to_4h``, ``gate_up_proj``."""
