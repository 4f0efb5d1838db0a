"""Formulas of models that join a vision tower to a language model, by model type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from compatcheck.architectures import decoders, experts, hybrids
from compatcheck.architectures.keys import Keys
from compatcheck.architectures.parts import (
    Heads,
    Layer,
    LinearLayer,
    ParameterCounts,
    decoder,
    gated_mlp,
    linear,
)
from compatcheck.architectures.towers import LINEARS, TOWERS, computes_unused

if TYPE_CHECKING:
    from compatcheck.architectures.decoders import Formula


def _mllama_text(keys: Keys) -> ParameterCounts:
    heads, hidden = Heads.of(keys, width=False), keys.size("hidden_size")
    layer = heads.attention() + gated_mlp(hidden, keys.size("intermediate_size")) + 2 * hidden
    crossing = keys.numbers("cross_attention_layers")
    chosen = (3, 8, 13, 18, 23, 28, 33, 38) if crossing is None else crossing
    cross = layer + 2 * heads.width + 2  # norms of queries and keys, two gates
    layers = [Layer(cross if i in chosen else layer) for i in range(keys.amount("num_hidden_layers"))]
    counts = decoder(keys, layers, tied=False)
    reserved = 8 * hidden  # image tokens after the vocabulary
    return counts._replace(embedding=counts.embedding + reserved, total=counts.total + reserved)


def _qwen2_vl_text(keys: Keys) -> ParameterCounts:
    return decoders.llama(keys, qkv_bias=True, head_dim=False)


_TEXT: Mapping[str, Formula] = {
    "gemma4_text": experts.FORMULAS["gemma4_text"],
    "glm4v_text": lambda keys: decoders.llama(keys, qkv_bias=True, norms=4, head_dim=False),
    "llama4_text": experts.FORMULAS["llama4_text"],
    "mistral4": experts.FORMULAS["deepseek_v3"],
    "mllama_text_model": _mllama_text,
    "qwen2_5_vl_text": _qwen2_vl_text,
    "qwen2_vl_text": _qwen2_vl_text,
    "qwen3_5_moe_text": hybrids.FORMULAS["qwen3_5_moe_text"],
    "qwen3_5_text": hybrids.FORMULAS["qwen3_5_text"],
    "qwen3_vl_moe_text": experts.FORMULAS["qwen3_moe"],
    "qwen3_vl_text": decoders.FORMULAS["qwen3"],
    **{
        name: decoders.FORMULAS[name]
        for name in ("gemma", "gemma2", "gemma3_text", "llama", "ministral3", "mistral", "qwen2", "qwen3")
    },
}
"""Language models that have been checked inside a multimodal model."""


def _tied(keys: Keys, text: Keys, *, either: bool) -> bool | None:
    """Tell whether the head is the embedding; None where releases of transformers disagree.

    Releases before 5 go by the language model's ``tie_word_embeddings``, later ones by that of the whole, or by either.
    """
    outer, inner = keys.flag("tie_word_embeddings"), text.flag("tie_word_embeddings")
    return inner if outer == inner or (either and inner) else None


Projector = Callable[[Keys, Keys, Keys], int]
"""Counts what lies between tower and language model, given the whole, the language model and the tower."""


def _join(
    keys: Keys,
    text: Keys | None,
    vision: Keys | None,
    projector: Projector = lambda _keys, _text, _vision: 0,
    *,
    either: bool = False,
    tied: bool | None = None,
) -> ParameterCounts | None:
    if text is None or vision is None:
        return None
    between = projector(keys, text, vision)
    tied = _tied(keys, text, either=either) if tied is None else tied
    if tied is None or text.model_type not in _TEXT or vision.model_type not in TOWERS:
        return None
    counts = _TEXT[text.model_type](text.replace(tie_word_embeddings=tied))
    if counts is None:
        return None
    towers = TOWERS[vision.model_type](vision) + between
    return counts._replace(
        vision=towers,
        total=counts.total + towers,
        tower=LINEARS[vision.model_type](vision),
        unused=computes_unused(keys, vision),
    )


def _parts(keys: Keys, *fixed: str) -> tuple[Keys | None, Keys | None]:
    text, vision = (keys.part(name, fixed=name in fixed) for name in _PARTS)
    return text, vision


_PARTS = ("text_config", "vision_config")


def _family(projector: Projector, *fixed: str, either: bool = False, tied: bool | None = None) -> Formula:
    """Return the formula of a model of two parts, of which the class of the whole gives those that are ``fixed``."""
    return lambda keys: _join(keys, *_parts(keys, *fixed), projector, either=either, tied=tied)


def _feature_layers(keys: Keys) -> int:
    value, _ = keys.find("vision_feature_layer")
    return len(value) if isinstance(value, list) else 1


def _llava_projector(keys: Keys, text: Keys, vision: Keys) -> int:
    hidden, bias = text.size("hidden_size"), keys.flag("multimodal_projector_bias")
    return linear(vision.size("hidden_size") * _feature_layers(keys), hidden, bias) + linear(hidden, hidden, bias)


def _llava_next_projector(keys: Keys, text: Keys, vision: Keys) -> int:
    return _llava_projector(keys, text, vision) + text.size("hidden_size")  # and the end of a line of patches


def _mistral3_projector(keys: Keys, text: Keys, vision: Keys) -> int:
    width = vision.size("hidden_size")
    merger = width + linear(width * keys.size("spatial_merge_size") ** 2, width)
    return merger + _llava_projector(keys, text, vision)


def _paligemma_projector(keys: Keys, _: Keys, vision: Keys) -> int:
    return linear(vision.size("hidden_size"), keys.size("projection_dim"), bias=True)


def _gemma3_projector(_: Keys, text: Keys, vision: Keys) -> int:
    width = vision.size("hidden_size")
    return linear(width, text.size("hidden_size")) + width


def _idefics3_projector(keys: Keys, text: Keys, vision: Keys) -> int:
    return linear(vision.size("hidden_size") * keys.size("scale_factor") ** 2, text.size("hidden_size"))


def _llama4_projector(_: Keys, text: Keys, vision: Keys) -> int:
    return linear(vision.size("vision_output_dim"), text.size("hidden_size"))


def _mllama_projector(_: Keys, text: Keys, vision: Keys) -> int:
    return linear(vision.size("vision_output_dim"), text.size("hidden_size"), bias=True)


def _qwen2_vl(keys: Keys) -> ParameterCounts | None:
    text, vision = _parts(keys, *_PARTS)
    if not isinstance(keys.config.get("text_config"), Mapping):
        text = keys.flat_part("text_config")  # files of before 4.52 hold the language model's keys at the top
    return _join(keys, text, vision, either=True)


def _glm4v(keys: Keys) -> ParameterCounts | None:
    text, vision = _parts(keys, *_PARTS)
    return _join(keys, text, vision, tied=keys.flag("tie_word_embeddings"))


def _qwen3_vl(keys: Keys) -> ParameterCounts | None:
    text, vision = _parts(keys, *_PARTS)
    if text is not None and text.model_type == "qwen3_vl_moe_text" and not text.has("tie_word_embeddings"):
        text = text.replace(tie_word_embeddings=False)  # the default before release 5
    return _join(keys, text, vision)


def _gemma4(keys: Keys) -> ParameterCounts | None:
    """Count Gemma 4, whose towers for images and sound are there where the file describes them."""
    text = keys.part("text_config", fixed=True)
    if text is None or "vision_config" not in keys.config or (tied := _tied(keys, text, either=False)) is None:
        return None
    towers = 0
    linears: tuple[LinearLayer, ...] = ()
    for name, output in (("vision_config", "hidden_size"), ("audio_config", "output_proj_dims")):
        if keys.config.get(name) is None:
            continue
        tower = keys.part(name)
        if tower is None or tower.model_type not in TOWERS:
            return None
        towers += TOWERS[tower.model_type](tower) + linear(tower.size(output), text.size("hidden_size"))
        linears += LINEARS[tower.model_type](tower) if tower.model_type in LINEARS else ()
    counts = _TEXT["gemma4_text"](text.replace(tie_word_embeddings=tied))
    return None if counts is None else counts._replace(vision=towers, total=counts.total + towers, tower=linears)


def _llama4(keys: Keys) -> ParameterCounts | None:
    text, vision = _parts(keys, *_PARTS)
    if text is None or text.flag("attention_bias"):
        return None  # releases before 5 leave these biases out
    return _join(keys, text, vision, _llama4_projector, tied=text.flag("tie_word_embeddings"))


FORMULAS: Mapping[str, Formula] = {
    "gemma3": _family(_gemma3_projector, "text_config"),
    "gemma4": _gemma4,
    "glm4v": _glm4v,
    "idefics3": _family(_idefics3_projector, "vision_config"),
    "llama4": _llama4,
    "llava": _family(_llava_projector, either=True),
    "llava_next": _family(_llava_next_projector),
    "mistral3": _family(_mistral3_projector),
    "mllama": _family(_mllama_projector, *_PARTS, tied=False),
    "paligemma": _family(_paligemma_projector),
    "qwen2_5_vl": _qwen2_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "smolvlm": _family(_idefics3_projector, "vision_config"),
}
