"""Reads a model's dimensions from its config.json, each with the key it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compatcheck.architectures.count import read_keys
from compatcheck.architectures.keys import CLASS_DEFAULT, ClassDefaults, Keys
from compatcheck.architectures.remote_code import FUSED_GATE_UP
from compatcheck.core.data_file import read_data
from compatcheck.core.facts import Value
from compatcheck.core.units import canonical_dtype

_NAMES: Mapping[str, Sequence[str]] = read_data(__file__, "dimension_keys")
"""Vocabulary name → keys that hold it, across model types."""
_LANGUAGE_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys of the nested language model in multimodal configurations; the last one nests a ``text_config`` again."""
_TYPES = read_data(__file__, "model_types")
_FOURFOLD = frozenset(_TYPES["fourfold"])
"""Types whose MLP is four times the hidden size where nothing else is said."""
_EXPERT_WIDTH_IS_INTERMEDIATE = frozenset(_TYPES["expert_width_is_intermediate"])
"""Types whose ``intermediate_size`` is the width of one expert."""
_CONV3D = frozenset(_TYPES["conv3d"])
"""Types with a Conv3d as patch embedding."""
_QUANTIZATIONS = {
    "gptq": "gptq", "awq": "awq", "fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "aqlm": "aqlm", "hqq": "hqq",
    "eetq": "eetq", "torchao": "torchao",
}  # fmt: skip
_ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4",
    "W4A16_AWQ": "awq",
}  # fmt: skip
"""Words of NVIDIA's Model Optimizer (0.47.0 torch/export/convert_hf_config.py)."""
OF_MODEL_OPTIMIZER = "hf_quant_config.json"
"""File beside config.json that says the same where that one is silent, as engines read it (sglang 0.5.6 model_config.py)."""
_FORMATS = {
    "float-quantized": "fp8", "int-quantized": "int8", "nvfp4-pack-quantized": "nvfp4", "mxfp8-quantized": "mxfp8",
}  # fmt: skip
"""Formats of compressed-tensors whose weights take the same whatever else it says (0.20.1 config/base.py)."""
_LEFT_AS_IT_IS = re.compile(r"(?i)lm_head|embed|norm|vis(?:ion|ual)|audio|projector|mtp|(?:gate|router)\W*$")
"""What may be left out of quantisation and is no weight of a block, or a small one."""
ATTENTION = (
    "eager",
    "sdpa",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
    "flex_attention",
)
"""Attention implementations of transformers that are told apart."""

Found = tuple[Value, str]
"""A value and the dotted key it came from, several with commas, or ``class default``."""


def dimensions(config: Mapping[str, object], path: str = "config.json") -> Mapping[str, Found]:
    """Return what the configuration says about the model, by vocabulary name, each with its key.

    Keys left out have the class default of their model type; where the type is not known, or a value is not told by the
    file, the name is absent.

    Raises:
        InputError: a key has the wrong type or a negative value.
    """
    keys = read_keys(config, path)
    known = keys is not None
    if keys is None:
        keys = Keys(config, ClassDefaults({}, {}, {}), path=path)
    text = _find_language_model(keys)
    found: dict[str, Found | None] = {name: _integer(text, names) for name, names in _NAMES.items()}
    found |= _read_heads(text, found)
    found |= _read_widths(text, found)
    found["num_hidden_layers"] = _add_decoder(text, found["num_hidden_layers"] or _count_blocks(text))
    heard = keys.find("num_mel_bins")[1] is not None
    found["encoder_positions"] = _integer(keys, ("max_source_positions",)) if heard else None
    found["attention_layers"] = _count_attention(text, found["num_hidden_layers"])
    found |= _read_switches(keys, text, known=known)
    found["load_dtype"] = _read_dtype(keys, text)
    found["quantization"] = _read_quantization(keys)
    return {f"model.{name}": value for name, value in found.items() if value is not None}


def _find_language_model(keys: Keys) -> Keys:
    for name in _LANGUAGE_PARTS:
        if not keys.has_part(name):
            continue
        given = keys.config.get(name)
        if given is None and keys.has("hidden_size"):
            return keys.flat_part(name) or keys
        part = keys.part(name) or keys.mapping(name)
        return _find_language_model(part) if name == "thinker_config" else part
    return keys


def _integer(keys: Keys, names: Sequence[str]) -> Found | None:
    """Return the first of the keys that the file holds, else the first with a class default."""
    default: Found | None = None
    for name in names:
        value, key = keys.find(name)
        if key is None or value is None:
            continue
        if isinstance(value, list):
            return None  # another value in each layer
        if key == CLASS_DEFAULT:
            default = default or ((value, key) if isinstance(value, int) else None)
        else:
            return keys.amount(name), key
    return default


def _read_heads(keys: Keys, found: Mapping[str, Found | None]) -> dict[str, Found | None]:
    heads, hidden = found["num_attention_heads"], found["hidden_size"]
    model_type = keys.config.get("model_type")
    key_value = _integer(keys, ("num_key_value_heads", "num_kv_heads")) or heads
    if (model_type == "falcon" and not keys.flag("new_decoder_architecture")) or model_type == "gpt_bigcode":
        key_value = (1, keys.find("multi_query")[1] or CLASS_DEFAULT) if keys.flag("multi_query") else heads
    elif model_type == "dbrx":
        key_value = _integer(keys.mapping("attn_config"), ("kv_n_heads",))
    elif model_type == "chatglm" and keys.flag("multi_query_attention"):
        key_value = _integer(keys, ("multi_query_group_num",))
    compressed, rotated = _integer(keys, ("kv_lora_rank",)), _integer(keys, ("qk_rope_head_dim",))
    width: Found | None = None
    if compressed is None:  # else queries, keys and values have different widths, so that there is no one head_dim
        width = _integer(keys, ("head_dim", "d_kv"))
        if width is None and heads and hidden and isinstance(heads[0], int) and isinstance(hidden[0], int) and heads[0]:
            width = (hidden[0] // heads[0], _join_keys(hidden[1], heads[1]))
    latent: Found | None = None
    if (
        compressed is not None
        and rotated is not None
        and isinstance(compressed[0], int)
        and isinstance(rotated[0], int)
    ):
        latent = (compressed[0] + rotated[0], _join_keys(compressed[1], rotated[1]))
    return {"num_key_value_heads": key_value, "head_dim": width, "latent_cache_width": latent}


def _add_decoder(keys: Keys, encoder: Found | None) -> Found | None:
    """Count the blocks of both stacks where the file's key for them is one stack's: T5's decoder is as deep unless it says so."""
    own = _integer(keys, ("encoder_layers",))
    encoder, name = (own, "decoder_layers") if own is not None else (encoder, "num_decoder_layers")
    if encoder is None or not isinstance(encoder[0], int) or keys.find(name)[1] is None:
        return encoder
    decoder = _integer(keys, (name,)) or encoder
    return (encoder[0] + decoder[0], encoder[1]) if isinstance(decoder[0], int) else encoder


def _count_blocks(keys: Keys) -> Found | None:
    """Count the blocks that a list alone tells."""
    value, key = keys.find("layers_block_type")
    return (len(value), key) if key is not None and isinstance(value, list) and value else None


def _count_attention(keys: Keys, layers: Found | None) -> Found | None:
    """Count the blocks with attention scores where others have linear attention, a state-space model or a convolution."""
    amount = layers[0] if layers and isinstance(layers[0], int) else 0
    for name in ("layer_types", "layers_block_type"):
        value, key = keys.find(name)
        if key is not None and isinstance(value, list) and value:
            kinds = [str(kind) for kind in value[: amount or None]]
            attending = sum("attention" in kind and "linear" not in kind for kind in kinds)
            return (attending, key) if 0 < attending < len(kinds) else None
    pattern, key = keys.find("hybrid_override_pattern")
    if key is not None and isinstance(pattern, str):
        attending = pattern.count("*")
        return (attending, key) if 0 < attending < len(pattern) else None
    lists, key = keys.find("linear_attn_config")
    numbers = lists.get("full_attn_layers") if isinstance(lists, Mapping) else None
    if key is not None and isinstance(numbers, list):
        return (len(numbers), key) if 0 < len(numbers) < amount else None
    for name in ("full_attention_interval", "attn_layer_period"):
        value, key = keys.find(name)
        if key is not None and type(value) is int and 1 < value <= amount:
            return amount // value, key
    return None


def _join_keys(*keys: str) -> str:
    read = [key for key in keys if key != CLASS_DEFAULT]
    return ", ".join(read) if read else CLASS_DEFAULT


def _read_widths(keys: Keys, found: Mapping[str, Found | None]) -> dict[str, Found | None]:
    model_type = keys.config.get("model_type")
    width, hidden, expert = found["intermediate_size"], found["hidden_size"], found["moe_intermediate_size"]
    result: dict[str, Found | None] = {}
    if width is None and model_type in _FOURFOLD and hidden is not None and isinstance(hidden[0], int):
        result["intermediate_size"] = (4 * hidden[0], hidden[1])
    if width is not None and width[1] == "inner_hidden_size":
        result["gated_mlp"] = (False, width[1])  # only the first ChatGLM has that key
    if isinstance(model_type, str):
        result["fused_gate_up"] = (model_type in FUSED_GATE_UP and "gated_mlp" not in result, "model_type")
    if model_type == "qwen" and width is not None and isinstance(width[0], int):
        result["intermediate_size"] = (width[0] // 2, width[1])  # as its code halves it
    if expert is None and model_type in _EXPERT_WIDTH_IS_INTERMEDIATE:
        result["moe_intermediate_size"] = width
    if model_type == "dbrx":
        ffn = keys.mapping("ffn_config")
        result["num_experts"] = _integer(ffn, ("moe_num_experts",))
        result["num_experts_per_token"] = _integer(ffn, ("moe_top_k",))
        result["intermediate_size"] = result["moe_intermediate_size"] = _integer(ffn, ("ffn_hidden_size",))
    return result


def _read_switches(keys: Keys, text: Keys, *, known: bool) -> dict[str, Found | None]:
    model_type = keys.text("model_type")
    result: dict[str, Found | None] = {
        "model_type": None if model_type is None else (model_type, "model_type"),
        "architecture": None,
        "sliding_window": _read_window(text),
        "attn_logit_softcapping": _read_softcapping(text),
        "tie_word_embeddings": _flag(keys, "tie_word_embeddings"),
        "image_blocks": _read_image_blocks(text),
        "alibi": _flag(text, "alibi"),
        "use_cache": _flag(keys, "use_cache") or _flag(text, "use_cache"),
        "output_router_logits": _flag(text, "output_router_logits"),
        "router_loss_weight": _read_number(text, "router_aux_loss_coef"),
        "output_attentions": _flag(keys, "output_attentions") or ((False, CLASS_DEFAULT) if known else None),
    }
    architectures = keys.names("architectures")
    if architectures:
        result["architecture"] = (architectures[0], "architectures")
    if text is not keys:
        outer, inner = result["tie_word_embeddings"], _flag(text, "tie_word_embeddings")
        if outer is None or (inner is not None and inner[0] != outer[0]):
            # releases differ in which of the two they follow
            result["tie_word_embeddings"] = inner if outer is None else None
    if model_type in _CONV3D:
        result["has_conv3d"] = (True, "model_type")
    elif known:
        result["has_conv3d"] = (False, "model_type")
    for name in ("hidden_activation", "hidden_act", "activation_function", "activation"):
        value = text.config.get(name)
        if isinstance(value, str):
            result["hidden_act"] = (value, name)
            break
    for name in ("attn_implementation", "_attn_implementation"):
        value = keys.config.get(name)
        if isinstance(value, str) and value in ATTENTION:
            result["attn_implementation"] = (value, name)
    return result


def _flag(keys: Keys, name: str) -> Found | None:
    value, key = keys.find(name)
    return None if key is None or value is None else (keys.flag(name), key)


def _read_image_blocks(keys: Keys) -> Found | None:
    value, key = keys.find("use_bidirectional_attention")
    return None if key is None else (value == "vision", key)


def _read_softcapping(keys: Keys) -> Found | None:
    value, key = keys.find("attn_logit_softcapping")
    return None if key is None or not (value is None or isinstance(value, int | float)) else (value, key)


def _read_number(keys: Keys, name: str) -> Found | None:
    value, key = keys.find(name)
    return (float(value), key) if key is not None and type(value) in {int, float} else None  # type: ignore[arg-type]  # as tested


def _read_window(keys: Keys) -> Found | None:
    _value, key = keys.find("sliding_window")
    if key is None or (keys.config.get("model_type") == "gemma3_text" and keys.flag("use_bidirectional_attention")):
        return None  # halved by the model then
    use = keys.find("use_sliding_window")
    if use[1] is not None and not keys.flag("use_sliding_window"):
        return None, use[1]
    return (keys.amount("sliding_window", 0) or None), key


def _read_dtype(keys: Keys, text: Keys) -> Found | None:
    for part in (keys, text):
        for name in ("dtype", "torch_dtype"):
            value, key = part.find(name)
            if value is None or key is None or key == CLASS_DEFAULT or value == "auto":
                continue
            dtype = canonical_dtype(value) if isinstance(value, str) else None
            if dtype is None:
                raise part.error(name, "a dtype such as bfloat16")
            return dtype, key
    return None


def _read_quantization(keys: Keys) -> Found | None:
    value, key = keys.find("quantization_config")
    beside = keys.config.get(OF_MODEL_OPTIMIZER)
    if value is None and isinstance(beside, Mapping) and isinstance(beside.get("quantization"), Mapping):
        stated = {**beside["quantization"], "ignore": beside["quantization"].get("exclude_modules")}
        known = _ALGORITHMS.get(str(stated.get("quant_algo"))) if _takes_all(stated) else None
        return None if known is None else (known, OF_MODEL_OPTIMIZER)
    if value is None:
        return None, key or CLASS_DEFAULT
    if not isinstance(value, Mapping):
        raise keys.error("quantization_config", "a mapping")
    if keys.config.get("expert_dtype") or value.get("expert_dtype"):
        return None  # experts are stored in another way than the rest
    method = value.get("quant_method")
    if value.get("load_in_4bit") is True:
        kind = value.get("bnb_4bit_quant_type", "fp4")  # the default of BitsAndBytesConfig
        return (kind, "quantization_config") if kind in {"nf4", "fp4"} else None
    if value.get("load_in_8bit") is True:
        return "int8", "quantization_config"
    known = _QUANTIZATIONS.get(method) if isinstance(method, str) else None
    if method in {"modelopt", "compressed-tensors"} and _takes_all(value):
        known = _ALGORITHMS.get(str(value.get("quant_algo"))) or _FORMATS.get(str(value.get("format")))
    return None if known is None else (known, "quantization_config")


def _takes_all(quantization: Mapping[str, object]) -> bool:
    """Tell whether every large weight of the blocks is quantised, and in one way."""
    left_out, groups = quantization.get("ignore"), quantization.get("config_groups")
    alike = not isinstance(groups, Mapping) or len(groups) <= 1
    names = left_out if isinstance(left_out, list) else []
    return alike and all(_LEFT_AS_IT_IS.search(str(name)) for name in names)
