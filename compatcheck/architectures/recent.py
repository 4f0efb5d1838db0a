"""Formulas of types that transformers has and that were checked against its release 5.24.0, behind that of the measurements.

Like those of `remote_code` their configuration classes are not among the class defaults, so a file that leaves out a dimension
is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from compatcheck.architectures.decoders import FORMULAS as DECODERS
from compatcheck.architectures.decoders import count_qk_norm
from compatcheck.architectures.experts import FORMULAS as EXPERTS
from compatcheck.architectures.experts import GRANITE_ROUTER, granite_mlp
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
from compatcheck.architectures.towers import LINEARS, TOWERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.decoders import Formula
    from compatcheck.architectures.keys import Keys

_UNTIED = {"tie_word_embeddings": False}
_MAMBA = {"mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_rms_norm": True}
CONFIGURATIONS: Mapping[str, ClassDefaults] = {
    "afmoe": ClassDefaults(_UNTIED, {}, {}, "AfmoeForCausalLM"),
    "exaone_moe": ClassDefaults({**_UNTIED, "first_k_dense_replace": 1}, {}, {}, "ExaoneMoeForCausalLM"),
    "falcon_h1": ClassDefaults({**_UNTIED, **_MAMBA, "mamba_rms_norm": False}, {}, {}, "FalconH1ForCausalLM"),
    "glm4v_moe": ClassDefaults(_UNTIED, {}, {}, "Glm4vMoeForConditionalGeneration"),
    "granitemoehybrid": ClassDefaults(
        {**_UNTIED, **_MAMBA}, {"layers_block_type": "layer_types"}, {}, "GraniteMoeHybridForCausalLM"
    ),
    "internvl": ClassDefaults({"downsample_ratio": 0.5}, {}, {}, "InternVLForConditionalGeneration"),
    "solar_open": ClassDefaults(_UNTIED, {}, {}, "SolarOpenForCausalLM"),
}
"""Model type → what its configuration class says about keys that a file leaves out."""
_TOWER = ClassDefaults(
    {"norm_type": "layer_norm", "layer_scale_init_value": 0.1, "num_channels": 3, "use_mean_pooling": True}, {}, {}
)
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_MIXER = ("mamba_n_heads", "mamba_d_state", "mamba_d_conv", "mamba_n_groups")


def _mix(keys: Keys, inner: int, *, bias: bool) -> int:
    """Count a Mamba 2 mixer: projections, convolution, time-step bias, A and D, and its norm where it has one."""
    hidden, heads = keys.size("hidden_size"), keys.size("mamba_n_heads")
    mixed = inner + 2 * keys.size("mamba_n_groups") * keys.size("mamba_d_state")
    convolution = mixed * keys.size("mamba_d_conv") + (mixed if keys.flag("mamba_conv_bias") else 0)
    projections = linear(hidden, inner + mixed + heads, keys.flag("mamba_proj_bias")) + linear(inner, hidden, bias)
    return projections + convolution + 3 * heads + (inner if keys.flag("mamba_rms_norm") else 0)


def _mixer_linears(keys: Keys, inner: int) -> tuple[LinearLayer, ...]:
    """Return the projections of `_mix`."""
    hidden, mixed = keys.size("hidden_size"), 2 * keys.size("mamba_n_groups") * keys.size("mamba_d_state")
    return (
        LinearLayer("mamba.in_proj", hidden, 2 * inner + mixed + keys.size("mamba_n_heads"), 1),
        LinearLayer("mamba.out_proj", inner, hidden, 1),
    )


def _granite_hybrid(keys: Keys) -> ParameterCounts | None:
    """Count Granite 4: attention or a mixer, and behind it an MLP of all tokens and experts where it has any."""
    kinds = keys.names("layer_types")
    if kinds is None or not all(map(keys.has, (*_SIZES, "num_local_experts", "shared_intermediate_size"))):
        return None
    hidden, bias, attending = keys.size("hidden_size"), keys.flag("attention_bias"), {"attention", "full_attention"}
    heads = Heads.of(keys)
    mixers = {kind: (heads.attention(qkv_bias=bias, out_bias=bias), heads.linears()) for kind in attending}
    if not attending.issuperset(kinds):
        if not all(map(keys.has, (*_MIXER, "mamba_expand"))):
            return None
        inner = int(keys.number("mamba_expand") * hidden)
        mixer = _mix(keys, inner, bias=keys.flag("mamba_proj_bias")), _mixer_linears(keys, inner)
        mixers |= {"mamba": mixer, "linear_attention": mixer}
    if len(kinds) != keys.amount("num_hidden_layers") or any(kind not in mixers for kind in kinds):
        return None
    experts = keys.amount("num_local_experts", 0)
    shared, width = keys.size("shared_intermediate_size"), keys.size("intermediate_size") if experts else 0
    beside = gated_mlp(hidden, shared) + experts * hidden + 2 * hidden
    routed, linears = experts * gated_mlp(hidden, width), granite_mlp(hidden, shared)
    if experts:
        linears += expert_linears(hidden, width, experts, path="block_sparse_moe", router=GRANITE_ROUTER)
    return decoder(keys, [Layer(mixers[kind][0] + beside, routed, (*mixers[kind][1], *linears)) for kind in kinds])


def _falcon_h1(keys: Keys) -> ParameterCounts | None:
    """Count Falcon H1, each of whose layers has attention and a mixer side by side."""
    if not all(map(keys.has, (*_SIZES, *_MIXER, "intermediate_size", "head_dim", "mamba_d_ssm"))):
        return None
    heads, bias = Heads.of(keys), keys.flag("attention_bias")
    mlp = gated_mlp(heads.hidden, keys.size("intermediate_size"), keys.flag("mlp_bias"))
    inner = keys.size("mamba_d_ssm")
    mixer = _mix(keys, inner, bias=keys.flag("projectors_bias"))
    names = mlp_linears("feed_forward", heads.hidden, keys.size("intermediate_size"))
    linears = (*heads.linears(), *_mixer_linears(keys, inner), *names)
    dense = heads.attention(qkv_bias=bias, out_bias=bias) + mixer + mlp + 2 * heads.hidden
    return decoder(keys, Layer(dense, 0, linears))


def _afmoe(keys: Keys) -> ParameterCounts | None:
    """Count Arcee's Trinity: a gate as wide as its queries, four norms a layer, dense layers first."""
    names = ("head_dim", "intermediate_size", "moe_intermediate_size", "num_experts", "num_shared_experts")
    if not all(map(keys.has, (*_SIZES, *names, "num_dense_layers"))):
        return None
    heads, hidden, bias = Heads.of(keys), keys.size("hidden_size"), keys.flag("attention_bias")
    experts, width = keys.size("num_experts"), keys.size("moe_intermediate_size")
    attention = heads.attention(qkv_bias=bias, out_bias=bias) + count_qk_norm(heads, "head")
    base = attention + linear(hidden, heads.query * heads.width) + 4 * hidden
    shared = gated_mlp(hidden, width * keys.amount("num_shared_experts"))
    gate = LinearLayer("self_attn.gate_proj", hidden, heads.query * heads.width, 1)
    beside = mlp_linears("mlp.shared_experts", hidden, width * keys.amount("num_shared_experts"))
    routed = expert_linears(hidden, width, experts, router="router.gate")
    sparse = Layer(
        base + experts * (hidden + 1) + shared,
        experts * gated_mlp(hidden, width),
        (*heads.linears(), gate, *routed, *beside),
    )
    wide = keys.size("intermediate_size")
    dense = Layer(base + gated_mlp(hidden, wide), 0, (*heads.linears(), gate, *mlp_linears("mlp", hidden, wide)))
    layers = keys.amount("num_hidden_layers")
    first = min(keys.amount("num_dense_layers", 0), layers)
    return decoder(keys, [dense] * first + [sparse] * (layers - first))


_ROUTED = ("head_dim", "moe_intermediate_size", "n_routed_experts", "n_shared_experts")


def _solar_open(keys: Keys) -> ParameterCounts | None:
    """Count Solar Open, GLM-4.5's with experts in every layer; a width of dense layers in its file is of none."""
    if not all(map(keys.has, (*_SIZES, *_ROUTED))):
        return None
    return EXPERTS["glm4_moe"](
        keys.replace(first_k_dense_replace=0, intermediate_size=keys.size("moe_intermediate_size"))
    )


def _exaone_moe(keys: Keys) -> ParameterCounts | None:
    """Count K-EXAONE, which has norms on queries and keys, without the layer that predicts a further token."""
    names = ("head_dim", "intermediate_size", "moe_intermediate_size", "num_experts", "num_shared_experts")
    if not all(map(keys.has, (*_SIZES, *names))):
        return None
    experts, shared = keys.size("num_experts"), keys.amount("num_shared_experts")
    return EXPERTS["dots1"](keys.replace(n_routed_experts=experts, n_shared_experts=shared))


_GLM_TEXT = ClassDefaults({"attention_bias": True, "first_k_dense_replace": 1}, {}, {})
_GLM_TOWER = cast("ClassDefaults", class_defaults("glm4v_vision"))


def _glm4v_moe(keys: Keys) -> ParameterCounts | None:
    """Count GLM-4.5V and 4.6V: GLM-4.5 Air's language model behind GLM-4.1V's tower."""
    text, vision = keys.nested("text_config", _GLM_TEXT), keys.nested("vision_config", _GLM_TOWER)
    if not all(map(text.has, (*_SIZES, *_ROUTED, "intermediate_size"))) or keys.find("vision_config")[0] is None:
        return None
    counts = EXPERTS["glm4_moe"](text.replace(tie_word_embeddings=keys.flag("tie_word_embeddings")))
    if counts is None:
        return None
    tower = TOWERS["glm4v_vision"](vision)
    return counts._replace(vision=tower, total=counts.total + tower, tower=LINEARS["glm4v_vision"](vision))


_LANGUAGE: Mapping[str, Formula] = {
    **{name: DECODERS[name] for name in ("llama", "qwen2", "qwen3")},
    **{name: EXPERTS[name] for name in ("gpt_oss", "qwen3_moe")},
}
"""Language models that InternVL was checked with."""


def _pixels(keys: Keys, name: str) -> int:
    """Return one side of what the file gives as a side or as both."""
    value, _ = keys.find(name)
    return (keys.numbers(name) or (0,))[0] if isinstance(value, list) else keys.size(name)


def _internvl(keys: Keys) -> ParameterCounts | None:
    """Count InternVL 3 and 3.5 in the form that transformers has: InternViT, a projector, a language model."""
    text, vision = keys.part("text_config"), keys.nested("vision_config", _TOWER)
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "image_size", "patch_size")
    counts = None if text is None or text.model_type not in _LANGUAGE else _LANGUAGE[text.model_type](text)
    if text is None or counts is None or not all(map(vision.has, sizes)) or vision.flag("use_mask_token"):
        return None
    width, layers, wide = (
        vision.size("hidden_size"),
        vision.amount("num_hidden_layers"),
        vision.size("intermediate_size"),
    )
    norm = layer_norm(width) if vision.text("norm_type") == "layer_norm" else width
    attention = 3 * linear(width, width, vision.flag("attention_bias")) + linear(width, width, bias=True)
    beside = 2 * norm + 2 * width + (2 * width if vision.flag("use_qk_norm") else 0)  # two norms, two scales
    block = attention + plain_mlp(width, wide, bias=True) + beside
    side = _pixels(vision, "patch_size")
    patches = (_pixels(vision, "image_size") // side) ** 2
    ends = vision.size("num_channels") * side**2 * width + width + (patches + 2) * width
    final = 0 if vision.flag("use_mean_pooling") else layer_norm(width)
    merged = width * int(1 / keys.number("downsample_ratio")) ** 2
    hidden = text.size("hidden_size")
    projector = layer_norm(merged) + linear(merged, hidden, bias=True) + linear(hidden, hidden, bias=True)
    tower = ends + layers * block + final + projector
    shapes = {
        **{f"attention.{name}": (width, width) for name in ("q_proj", "k_proj", "v_proj", "projection_layer")},
        "mlp.fc1": (width, wide),
        "mlp.fc2": (wide, width),
    }
    linears = tuple(LinearLayer(path, *shape, layers) for path, shape in shapes.items())
    return counts._replace(vision=tower, total=counts.total + tower, tower=linears)


FORMULAS: Mapping[str, Formula] = {
    "afmoe": _afmoe,
    "exaone_moe": _exaone_moe,
    "falcon_h1": _falcon_h1,
    "glm4v_moe": _glm4v_moe,
    "granitemoehybrid": _granite_hybrid,
    "internvl": _internvl,
    "solar_open": _solar_open,
}
