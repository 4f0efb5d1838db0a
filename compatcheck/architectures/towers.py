"""Formulas of vision towers inside multimodal models, by the tower's model type, and the linear layers of their blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.parts import LinearLayer, gated_mlp, layer_norm, linear, mlp_linears, plain_mlp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.architectures.keys import Keys


Linears = tuple[LinearLayer, ...]


def _patches(keys: Keys) -> int:
    return (keys.size("image_size") // keys.size("patch_size")) ** 2


def _patch_weights(keys: Keys, width: int) -> int:
    return keys.size("num_channels") * keys.size("patch_size") ** 2 * width


def _encoder_layers(keys: Keys) -> int:
    hidden = keys.size("hidden_size")
    mlp = plain_mlp(hidden, keys.size("intermediate_size"), bias=True)
    layer = 4 * linear(hidden, hidden, bias=True) + mlp + layer_norm(hidden, 2)
    return keys.amount("num_hidden_layers") * layer


def _clip(keys: Keys) -> int:
    hidden = keys.size("hidden_size")
    positions = (_patches(keys) + 1) * hidden + hidden  # and the class embedding
    return _patch_weights(keys, hidden) + positions + _encoder_layers(keys) + layer_norm(hidden, 2)


def _siglip_body(keys: Keys) -> int:
    hidden = keys.size("hidden_size")
    embeddings = _patch_weights(keys, hidden) + hidden + _patches(keys) * hidden
    return embeddings + _encoder_layers(keys) + layer_norm(hidden)


def _siglip(keys: Keys) -> int:
    hidden = keys.size("hidden_size")
    if not keys.flag("vision_use_head"):
        return _siglip_body(keys)
    mlp = plain_mlp(hidden, keys.size("intermediate_size"), bias=True)
    pooling = hidden + 4 * linear(hidden, hidden, bias=True) + layer_norm(hidden) + mlp
    return _siglip_body(keys) + pooling


def _pixtral(keys: Keys) -> int:
    hidden = keys.size("hidden_size")
    layer = 4 * linear(hidden, hidden) + gated_mlp(hidden, keys.size("intermediate_size")) + 2 * hidden
    return _patch_weights(keys, hidden) + hidden + keys.amount("num_hidden_layers") * layer


def _qwen_patches(keys: Keys, width: int) -> int:
    return keys.size("in_channels") * keys.size("temporal_patch_size") * keys.size("patch_size") ** 2 * width


def _merger(merged: int, output: int) -> int:
    return linear(merged, merged, bias=True) + linear(merged, output, bias=True)


def _qwen2_vl(keys: Keys) -> int:
    width = keys.size("embed_dim")
    mlp = plain_mlp(width, int(width * keys.number("mlp_ratio")), bias=True)
    layer = linear(width, 3 * width, bias=True) + linear(width, width, bias=True) + mlp + layer_norm(width, 2)
    merger = layer_norm(width) + _merger(width * keys.size("spatial_merge_size") ** 2, keys.size("hidden_size"))
    return _qwen_patches(keys, width) + keys.amount("depth") * layer + merger


def _qwen2_5_vl(keys: Keys) -> int:
    width = keys.size("hidden_size")
    mlp = gated_mlp(width, keys.size("intermediate_size"), bias=True)
    layer = linear(width, 3 * width, bias=True) + linear(width, width, bias=True) + mlp + 2 * width
    merger = width + _merger(width * keys.size("spatial_merge_size") ** 2, keys.size("out_hidden_size"))
    return _qwen_patches(keys, width) + keys.amount("depth") * layer + merger


def _qwen3_vl(keys: Keys) -> int:
    width = keys.size("hidden_size")
    merged = width * keys.size("spatial_merge_size") ** 2
    mlp = plain_mlp(width, keys.size("intermediate_size"), bias=True)
    layer = linear(width, 3 * width, bias=True) + linear(width, width, bias=True) + mlp + layer_norm(width, 2)
    body = _qwen_patches(keys, width) + width + keys.size("num_position_embeddings") * width
    merger = _merger(merged, keys.size("out_hidden_size"))
    deepstack = len(keys.numbers("deepstack_visual_indexes") or ()) * (layer_norm(merged) + merger)
    return body + keys.amount("depth") * layer + layer_norm(width) + merger + deepstack


def _glm4v(keys: Keys) -> int:
    width, output, merge = keys.size("hidden_size"), keys.size("out_hidden_size"), keys.size("spatial_merge_size")
    attention = linear(width, 3 * width, keys.flag("attention_bias")) + linear(width, width)
    layer = attention + gated_mlp(width, output) + 2 * width
    body = _qwen_patches(keys, width) + width + _patches(keys) * width + 2 * width
    merger = linear(width * merge**2, output, bias=True) + linear(output, output) + layer_norm(output)
    return body + keys.amount("depth") * layer + merger + gated_mlp(output, keys.size("intermediate_size"))


def _llama4(keys: Keys) -> int:
    hidden, output = keys.size("hidden_size"), keys.size("projector_output_dim")
    positions = (_patches(keys) + 1) * hidden + hidden  # and the class embedding
    adapter = linear(keys.size("intermediate_size"), keys.size("projector_input_dim")) + linear(output, output)
    return _patch_weights(keys, hidden) + positions + layer_norm(hidden, 2) + _encoder_layers(keys) + adapter


def _mllama(keys: Keys) -> int:
    hidden, tiles = keys.size("hidden_size"), keys.size("max_num_tiles")
    ratios, _ = keys.find("supported_aspect_ratios")
    kinds = (len(ratios) if isinstance(ratios, list) else 8) + 1
    mlp = plain_mlp(hidden, keys.size("intermediate_size"), bias=True)
    layer = 4 * linear(hidden, hidden) + mlp + layer_norm(hidden, 2)
    positions = _patches(keys) + 1
    tables = positions * hidden + kinds * tiles * positions * hidden + 1 + 2 * (kinds * tiles * hidden + 1)
    layers = keys.amount("num_hidden_layers") * layer + keys.amount("num_global_layers") * (layer + 2)
    return _patch_weights(keys, hidden) + hidden + tables + layer_norm(hidden, 2) + layers


def _gemma4(keys: Keys) -> int:
    hidden, width = keys.size("hidden_size"), keys.size("head_dim")
    attention = 2 * linear(hidden, (keys.size("num_attention_heads") + keys.size("num_key_value_heads")) * width)
    layer = attention + 2 * width + gated_mlp(hidden, keys.size("intermediate_size")) + 4 * hidden
    patches = 3 * keys.size("patch_size") ** 2 + 2 * keys.size("position_embedding_size")
    return patches * hidden + keys.amount("num_hidden_layers") * layer


def _gemma4_audio(keys: Keys) -> int:
    hidden, channels = keys.size("hidden_size"), keys.numbers("subsampling_conv_channels") or (0, 0)
    first, second = channels[:2]
    convolutions = 9 * first + first + 9 * first * second + second + linear(first // 4 * second, hidden)
    # two feed-forward layers with two norms each, attention with relative keys, a depthwise convolution, three norms
    attention = 5 * linear(hidden, hidden) + hidden // keys.size("num_attention_heads")
    convolution = 3 * linear(hidden, hidden) + hidden * keys.size("conv_kernel_size") + 2 * hidden
    layer = 2 * (plain_mlp(hidden, 4 * hidden) + 2 * hidden) + attention + convolution + 3 * hidden
    return (
        convolutions
        + keys.amount("num_hidden_layers") * layer
        + linear(hidden, keys.size("output_proj_dims"), bias=True)
    )


TOWERS: Mapping[str, Callable[[Keys], int]] = {
    "clip_vision_model": _clip,
    "gemma4_audio": _gemma4_audio,
    "gemma4_vision": _gemma4,
    "glm4v_vision": _glm4v,
    "idefics3_vision": _siglip_body,
    "llama4_vision_model": _llama4,
    "mllama_vision_model": _mllama,
    "pixtral": _pixtral,
    "qwen2_5_vl_vision": _qwen2_5_vl,
    "qwen2_vl_vision": _qwen2_vl,
    "qwen3_5_moe_vision": _qwen3_vl,
    "qwen3_5_vision": _qwen3_vl,
    "qwen3_vl_moe_vision": _qwen3_vl,
    "qwen3_vl_vision": _qwen3_vl,
    "siglip_vision_model": _siglip,
    "smolvlm_vision": _siglip_body,
}
"""Parameters of a tower."""

_USED_WHOLE = frozenset(
    {"idefics3_vision", "mllama_vision_model", "qwen2_5_vl_vision", "qwen2_vl_vision", "qwen3_vl_moe_vision", "qwen3_vl_vision",
     "smolvlm_vision", "glm4v_vision"}
)  # fmt: skip


def computes_unused(keys: Keys, tower: Keys) -> bool | None:
    """Tell whether a tower computes what the model takes nothing of: a pooled output, or what lies behind the features it takes.

    None for towers that nobody ran, and where releases differ (siglip's last norm behind the features of its last layer).

    Source: run on the CPU with transformers 4.57.1 and 5.24.0, one step of each type: saved tensors that backward does not take.
    """
    layer, _ = keys.find("vision_feature_layer")
    layers = layer if isinstance(layer, list) else [layer]
    behind = layer is not None and -1 not in layers and tower.amount("num_hidden_layers") not in layers
    match tower.model_type:
        case "clip_vision_model":
            return True  # the pooled output, whatever layer is taken
        case "siglip_vision_model":
            return True if tower.flag("vision_use_head") or behind else None if layer is not None else False
        case "pixtral":
            return behind
    return False if tower.model_type in _USED_WHOLE else None


def _block(attention: str, mlp: str, *widths: int, layers: int) -> Linears:
    """Return the layers of equal blocks.

    Args:
        attention: names of what queries, keys, values and outputs are made by; the first of two makes all but the outputs.
        mlp: names of the layers of an MLP, the last one gives its outputs.
        widths: of the residual stream, of the MLP, of all query and of all key heads where they differ.
        layers: blocks.
    """
    hidden, width, query, key = (*widths, widths[0], widths[0])[:4]
    first, *inner, last = attention.split()
    outputs = [query, key, key] if inner else [query + 2 * key]
    *into, out = mlp.split()
    return (
        *(LinearLayer(name, hidden, size, layers) for name, size in zip((first, *inner), outputs, strict=True)),
        LinearLayer(last, query, hidden, layers),
        *(LinearLayer(name, hidden, width, layers) for name in into),
        LinearLayer(out, width, hidden, layers),
    )


_SEPARATE = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj"
_GATED = "mlp.gate_proj mlp.up_proj mlp.down_proj"
_PLAIN = "mlp.fc1 mlp.fc2"


def _usual_linears(keys: Keys, attention: str = _SEPARATE, mlp: str = _PLAIN) -> Linears:
    widths = keys.size("hidden_size"), keys.size("intermediate_size")
    return _block(attention, mlp, *widths, layers=keys.amount("num_hidden_layers"))


def _pixtral_linears(keys: Keys) -> Linears:
    names = (name.replace("out", "o").replace("self_attn", "attention") for name in _SEPARATE.split())
    return _usual_linears(keys, " ".join(names), _GATED.replace("mlp", "feed_forward"))


def _qwen_linears(keys: Keys, mlp: str, hidden: str = "hidden_size", width: int | None = None) -> Linears:
    widths = keys.size(hidden), keys.size("intermediate_size") if width is None else width
    return _block("attn.qkv attn.proj", mlp, *widths, layers=keys.amount("depth"))


def _merging(keys: Keys, names: str, hidden: str, output: str, *, path: str = "merger", number: int = 1) -> Linears:
    """Return the two layers that join neighbouring patches and project them."""
    merged, (first, last) = keys.size(hidden) * keys.size("spatial_merge_size") ** 2, names.split()
    return (
        LinearLayer(f"{path}.{first}", merged, merged, number),
        LinearLayer(f"{path}.{last}", merged, keys.size(output), number),
    )


def _qwen2_vl_linears(keys: Keys) -> Linears:
    width = int(keys.size("embed_dim") * keys.number("mlp_ratio"))
    blocks = _qwen_linears(keys, _PLAIN, "embed_dim", width)
    return blocks + _merging(keys, "mlp.0 mlp.2", "embed_dim", "hidden_size")


def _qwen2_5_vl_linears(keys: Keys) -> Linears:
    return _qwen_linears(keys, _GATED) + _merging(keys, "mlp.0 mlp.2", "hidden_size", "out_hidden_size")


def _qwen3_vl_linears(keys: Keys) -> Linears:
    names, sizes = "linear_fc1 linear_fc2", ("hidden_size", "out_hidden_size")
    merging = _merging(keys, names, *sizes)
    further = len(keys.numbers("deepstack_visual_indexes") or ())
    if further:
        merging += _merging(keys, names, *sizes, path="deepstack_merger_list", number=further)
    return _qwen_linears(keys, "mlp.linear_fc1 mlp.linear_fc2") + merging


def _glm4v_linears(keys: Keys) -> Linears:
    output, width = keys.size("out_hidden_size"), keys.size("intermediate_size")
    projector = (LinearLayer("merger.proj", output, output, 1), *mlp_linears("merger", output, width))
    return _qwen_linears(keys, _GATED, width=output) + projector


def _llama4_linears(keys: Keys) -> Linears:
    output = keys.size("projector_output_dim")
    return (
        *_usual_linears(keys, _SEPARATE.replace("out_proj", "o_proj")),
        LinearLayer("vision_adapter.mlp.fc1", keys.size("intermediate_size"), keys.size("projector_input_dim"), 1),
        LinearLayer("vision_adapter.mlp.fc2", output, output, 1),
    )


def _mllama_linears(keys: Keys) -> Linears:
    local = _usual_linears(keys, _SEPARATE.replace("out_proj", "o_proj"))
    blocks = local[0].blocks + keys.amount("num_global_layers")
    return tuple(one._replace(blocks=blocks) for one in local)


def _gemma4_linears(keys: Keys) -> Linears:
    query, key = (keys.size(name) * keys.size("head_dim") for name in ("num_attention_heads", "num_key_value_heads"))
    widths = keys.size("hidden_size"), keys.size("intermediate_size"), query, key
    return _block(_SEPARATE.replace("out_proj", "o_proj"), _GATED, *widths, layers=keys.amount("num_hidden_layers"))


LINEARS: Mapping[str, Callable[[Keys], Linears]] = {
    "clip_vision_model": _usual_linears,
    "gemma4_vision": _gemma4_linears,
    "glm4v_vision": _glm4v_linears,
    "idefics3_vision": _usual_linears,
    "llama4_vision_model": _llama4_linears,
    "mllama_vision_model": _mllama_linears,
    "pixtral": _pixtral_linears,
    "qwen2_5_vl_vision": _qwen2_5_vl_linears,
    "qwen2_vl_vision": _qwen2_vl_linears,
    "qwen3_5_moe_vision": _qwen3_vl_linears,
    "qwen3_5_vision": _qwen3_vl_linears,
    "qwen3_vl_moe_vision": _qwen3_vl_linears,
    "qwen3_vl_vision": _qwen3_vl_linears,
    "siglip_vision_model": _usual_linears,
    "smolvlm_vision": _usual_linears,
}
"""Linear layers of attention and MLP in the blocks of a vision tower, and what merges its patches in those of Qwen and GLM;
what else pools or projects behind them is left out."""
