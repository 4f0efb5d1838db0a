"""Formulas of types that transformers has and that were checked against its release 5.24.0, behind that of the measurements.

The configuration classes of those in `CONFIGURATIONS` are not among the class defaults, so a file that leaves out a dimension is
not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from compatcheck.architectures.decoders import FORMULAS as DECODERS
from compatcheck.architectures.decoders import count_qk_norm
from compatcheck.architectures.experts import FORMULAS as EXPERTS
from compatcheck.architectures.experts import GRANITE_ROUTER, attend_latent, granite_mlp
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


def _find_attention(keys: Keys, full: str, linear_ones: str) -> list[bool] | None:
    """Tell for each layer of Kimi Linear whether it has attention: by names, or by two lists that count from one."""
    layers, types, lists = (
        keys.amount("num_hidden_layers"),
        keys.names("layer_types"),
        keys.mapping("linear_attn_config"),
    )
    if types is not None:
        return [kind == "full_attention" for kind in types] if len(types) == layers else None
    attending, others = lists.numbers(full), lists.numbers(linear_ones)
    if attending is None or others is None or sorted((*attending, *others)) != list(range(1, layers + 1)):
        return None
    return [number in attending for number in range(1, layers + 1)]


def _kimi_linear(keys: Keys) -> ParameterCounts | None:
    """Count Kimi Linear: Kimi delta attention, some layers latent attention, experts behind the first layer."""
    full = _find_attention(keys, "full_attn_layers", "kda_layers")
    if full is None or keys.amount("moe_layer_freq", 1) != 1:
        return None
    hidden, width, given = (
        keys.size("hidden_size"),
        keys.size("moe_intermediate_size"),
        keys.mapping("linear_attn_config"),
    )
    heads = (given if given.has("num_heads") else keys.replace(num_heads=keys.size("linear_num_heads"))).size(
        "num_heads"
    )
    size = (given if given.has("head_dim") else keys.replace(head_dim=keys.size("linear_head_dim"))).size("head_dim")
    kernel = given.amount("short_conv_kernel_size", keys.size("linear_conv_kernel_dim"))
    inner = heads * size
    gates = 2 * (linear(hidden, size) + linear(size, inner)) + linear(hidden, heads)
    delta = 4 * linear(hidden, inner) + 3 * inner * kernel + gates + inner + heads + size  # and time-step bias, A, norm
    latent, experts = attend_latent(keys), keys.size("num_local_experts")
    shared = gated_mlp(hidden, width * keys.amount("n_shared_experts", 0))
    first = keys.amount("first_k_dense_replace", 1)
    stack = []
    for i, attends in enumerate(full):
        base = (latent if attends else delta) + 2 * hidden
        if i < first:
            stack.append(Layer(base + gated_mlp(hidden, keys.size("intermediate_size"))))
        else:
            stack.append(Layer(base + experts * hidden + shared, experts * gated_mlp(hidden, width)))
    return decoder(keys, stack)


_RATIOS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
"""How many tokens DeepSeek-V4 packs into one → what its class calls such layers."""


def _deepseek_v4(keys: Keys) -> ParameterCounts | None:
    """Count DeepSeek-V4: one compressed key-value head, compressors, indexers, hyper-connections, experts in every layer.

    Tables that choose experts by a token's number are buffers; the layers that predict further tokens are left out.
    """
    layers, types, ratios = keys.amount("num_hidden_layers"), keys.names("layer_types"), keys.numbers("compress_ratios")
    if types is None and ratios is not None and set(ratios) <= set(_RATIOS):
        types = [_RATIOS[ratio] for ratio in ratios]
    if types is None or len(types) < layers or not set(types) <= set(_RATIOS.values()):
        return None
    if keys.flag("attention_bias") or keys.flag("mlp_bias") or keys.config.get("compress_rates") is not None:
        return None
    hidden, heads, size = keys.size("hidden_size"), keys.size("num_attention_heads"), keys.size("head_dim")
    rank, outputs, lanes = keys.size("q_lora_rank"), keys.size("o_lora_rank"), keys.size("hc_mult")
    indexed, index = keys.size("index_n_heads"), keys.size("index_head_dim")
    attention = heads + linear(hidden, rank) + rank + linear(rank, heads * size) + linear(hidden, size) + size
    attention += linear(outputs, heads * size) + linear(keys.size("o_groups") * outputs, hidden)
    mixes = lanes * (lanes + 2)
    connections = 2 * (mixes * lanes * hidden + mixes + 3)
    indexer = _compress(hidden, index, 4, 2) + linear(rank, indexed * index) + linear(hidden, indexed)
    beside = {
        "sliding_attention": 0,
        "compressed_sparse_attention": _compress(hidden, size, 4, 2) + indexer,
        "heavily_compressed_attention": _compress(hidden, size, 128, 1),
    }
    experts, width = keys.size("n_routed_experts"), keys.size("moe_intermediate_size")
    base = attention + connections + 2 * hidden + experts * hidden
    base += gated_mlp(hidden, width * keys.amount("n_shared_experts", 0))
    routed = experts * gated_mlp(hidden, width)
    head = lanes * lanes * hidden + lanes + 1
    return decoder(keys, [Layer(base + beside[kind], routed) for kind in types[:layers]], other=head)


def _compress(hidden: int, size: int, tokens: int, overlap: int) -> int:
    """Count what packs tokens into one: keys and gates, a bias for each place, a norm."""
    return 2 * linear(hidden, overlap * size) + tokens * overlap * size + size


def _mimo_v2_flash(keys: Keys) -> ParameterCounts | None:
    """Count MiMo-V2: layers with a window have other heads and a sink for each, without those that predict further tokens."""
    pattern, sparse = keys.numbers("hybrid_layer_pattern"), keys.numbers("moe_layer_freq")
    layers, names = (
        keys.amount("num_hidden_layers"),
        ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim"),
    )
    if (
        pattern is None
        or sparse is None
        or not len(pattern) == len(sparse) == layers
        or keys.optional("n_shared_experts")
    ):
        return None
    if keys.flag("attention_bias") or not all(map(keys.has, (*names, *(f"swa_{name}" for name in names)))):
        return None
    hidden, experts = keys.size("hidden_size"), keys.size("n_routed_experts")

    def attend(prefix: str, sink: str) -> int:
        heads, pairs, size, value = (keys.size(prefix + name) for name in names)
        return (
            linear(hidden, heads * size + pairs * (size + value))
            + linear(heads * value, hidden)
            + keys.flag(sink) * heads
        )

    full, window = attend("", "add_full_attention_sink_bias"), attend("swa_", "add_swa_attention_sink_bias")
    mlp, expert = (
        gated_mlp(hidden, keys.size("intermediate_size")),
        gated_mlp(hidden, keys.size("moe_intermediate_size")),
    )
    stack = []
    for slides, routes in zip(pattern, sparse, strict=True):
        base = (window if slides else full) + 2 * hidden
        stack.append(Layer(base + experts * hidden, experts * expert) if routes else Layer(base + mlp))
    return decoder(keys, stack)


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
    "deepseek_v4": _deepseek_v4,
    "exaone_moe": _exaone_moe,
    "falcon_h1": _falcon_h1,
    "glm4v_moe": _glm4v_moe,
    "granitemoehybrid": _granite_hybrid,
    "internvl": _internvl,
    "kimi_linear": _kimi_linear,
    "mimo_v2_flash": _mimo_v2_flash,
    "mistral4": EXPERTS["deepseek_v3"],
    "solar_open": _solar_open,
}
