"""Linear layers of language models whose blocks differ, as transformers 5 names them; routed experts are parameters there.

Source: modules of the classes of transformers 5.24.0 on the meta device; what adapters of them have is held against peft 0.21.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.parts import Heads, TowerLinear
from compatcheck.architectures.remote_code import list_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compatcheck.architectures.keys import Keys


def _join(*parts: Iterable[TowerLinear]) -> tuple[TowerLinear, ...]:
    return tuple(one for part in parts for one in part if one.blocks)


def _attend(
    keys: Keys, blocks: int, *, path: str = "self_attn", gated: bool = False, out: str = "o_proj"
) -> list[TowerLinear]:
    """Return what attention has; a gate lies in the layer of queries."""
    heads = Heads.of(keys)
    query, key = heads.query * heads.width, heads.key_value * heads.width
    outputs = {"q_proj": (2 if gated else 1) * query, "k_proj": key, "v_proj": key}
    found = [TowerLinear(f"{path}.{name}", heads.hidden, size, blocks) for name, size in outputs.items()]
    return [*found, TowerLinear(f"{path}.{out}", query, heads.hidden, blocks)]


def _gate(
    path: str, hidden: int, width: int, blocks: int, names: str = "gate_proj up_proj down_proj"
) -> list[TowerLinear]:
    """Return what an MLP has, its last layer the one that gives its outputs."""
    *into, out = names.split()
    found = [TowerLinear(f"{path}.{name}", hidden, width, blocks) for name in into]
    return [*found, TowerLinear(f"{path}.{out}", width, hidden, blocks)]


def _mix(path: str, hidden: int, wide: int, inner: int, blocks: int) -> list[TowerLinear]:
    """Return the two projections of a mixer."""
    return [
        TowerLinear(f"{path}.in_proj", hidden, wide, blocks),
        TowerLinear(f"{path}.out_proj", inner, hidden, blocks),
    ]


def _mamba2(keys: Keys, path: str, inner: int, blocks: int, prefix: str = "mamba_") -> list[TowerLinear]:
    groups, heads = ("n_groups", "mamba_num_heads") if not prefix else (f"{prefix}n_groups", f"{prefix}n_heads")
    state = keys.size(f"{prefix}d_state" if prefix else "ssm_state_size")
    wide = 2 * inner + 2 * keys.size(groups) * state + keys.size(heads)
    return _mix(path, keys.size("hidden_size"), wide, inner, blocks)


def _granite_hybrid(keys: Keys) -> tuple[TowerLinear, ...]:
    kinds, hidden, width = (
        keys.names("layer_types") or (),
        keys.size("hidden_size"),
        keys.size("shared_intermediate_size"),
    )
    full = sum(kind in {"attention", "full_attention"} for kind in kinds)
    shared = [
        TowerLinear("shared_mlp.input_linear", hidden, 2 * width, len(kinds)),
        TowerLinear("shared_mlp.output_linear", width, hidden, len(kinds)),
    ]
    mixers = len(kinds) - full
    mamba = _mamba2(keys, "mamba", int(keys.number("mamba_expand") * hidden), mixers) if mixers else []
    return _join(_attend(keys, full), mamba, shared)


def _falcon_h1(keys: Keys) -> tuple[TowerLinear, ...]:
    layers, hidden = keys.amount("num_hidden_layers"), keys.size("hidden_size")
    mamba = _mamba2(keys, "mamba", keys.size("mamba_d_ssm"), layers)
    return _join(_attend(keys, layers), mamba, _gate("feed_forward", hidden, keys.size("intermediate_size"), layers))


def _nemotron_h(keys: Keys) -> tuple[TowerLinear, ...]:
    blocks, hidden = list(list_blocks(keys) or ()), keys.size("hidden_size")
    count = blocks.count
    inner = keys.size("mamba_num_heads") * keys.size("mamba_head_dim")
    plain = "up_proj down_proj"
    shared: Sequence[TowerLinear] = ()
    if count("moe"):
        width = keys.size("moe_shared_expert_intermediate_size")
        shared = _gate("mixer.shared_experts", hidden, width, count("moe"), plain)
    if count("moe") and keys.optional("moe_latent_size"):
        return ()  # layers that lead to and from the narrow stream of the experts were not read
    return _join(
        _attend(keys, count("attention"), path="mixer"),
        _mamba2(keys, "mixer", inner, count("mamba"), ""),
        _gate("mixer", hidden, keys.size("intermediate_size"), count("mlp"), plain) if count("mlp") else (),
        shared,
    )


def _jamba(keys: Keys) -> tuple[TowerLinear, ...]:
    layers, hidden, width = keys.amount("num_hidden_layers"), keys.size("hidden_size"), keys.size("intermediate_size")
    every, offset = keys.size("attn_layer_period"), keys.amount("attn_layer_offset")
    sparse_every, sparse_offset = keys.size("expert_layer_period"), keys.amount("expert_layer_offset")
    full = sum(i % every == offset for i in range(layers))
    sparse = sum(i % sparse_every == sparse_offset for i in range(layers)) if keys.size("num_experts") > 1 else 0
    inner, state = int(keys.number("mamba_expand") * hidden), keys.size("mamba_d_state")
    rank = -(-hidden // 16) if keys.find("mamba_dt_rank")[0] == "auto" else keys.size("mamba_dt_rank")
    steps = [
        TowerLinear("mamba.x_proj", inner, rank + 2 * state, layers - full),
        TowerLinear("mamba.dt_proj", rank, inner, layers - full),
    ]
    mamba = _mix("mamba", hidden, 2 * inner, inner, layers - full)
    return _join(_attend(keys, full), mamba, steps, _gate("feed_forward", hidden, width, layers - sparse))


def _find_full(keys: Keys) -> int:
    types, layers = keys.names("layer_types"), keys.amount("num_hidden_layers")
    if types is not None:
        return sum(kind == "full_attention" for kind in types[:layers])
    return layers // (keys.size("full_attention_interval") if keys.find("full_attention_interval")[0] else 4)


def _qwen3_hybrid(keys: Keys) -> tuple[TowerLinear, ...]:
    layers, hidden, full = keys.amount("num_hidden_layers"), keys.size("hidden_size"), _find_full(keys)
    heads = keys.size("linear_num_value_heads")
    key, value = (
        keys.size("linear_num_key_heads") * keys.size("linear_key_head_dim"),
        heads * keys.size("linear_value_head_dim"),
    )
    outputs = {"in_proj_qkvz": 2 * key + 2 * value, "in_proj_ba": 2 * heads}
    if keys.model_type != "qwen3_next":
        outputs = {"in_proj_qkv": 2 * key + value, "in_proj_z": value, "in_proj_b": heads, "in_proj_a": heads}
    net = [TowerLinear(f"linear_attn.{name}", hidden, size, layers - full) for name, size in outputs.items()]
    net.append(TowerLinear("linear_attn.out_proj", value, hidden, layers - full))
    dense, shared = layers, []
    if keys.model_type != "qwen3_5_text":
        if keys.model_type == "qwen3_next" and (
            keys.numbers("mlp_only_layers") or keys.size("decoder_sparse_step") > 1
        ):
            return ()  # some layers without experts: no published model has any
        dense = 0
        shared = _gate("mlp.shared_expert", hidden, keys.size("shared_expert_intermediate_size"), layers)
        shared.append(TowerLinear("mlp.shared_expert_gate", hidden, 1, layers))
    mlp = _gate("mlp", hidden, keys.size("intermediate_size"), layers) if dense else []
    return _join(_attend(keys, full, gated=True), net, mlp, shared)


LINEARS: Mapping[str, Callable[[Keys], tuple[TowerLinear, ...]]] = {
    "falcon_h1": _falcon_h1,
    "granitemoehybrid": _granite_hybrid,
    "jamba": _jamba,
    "nemotron_h": _nemotron_h,
    "qwen3_5_moe_text": _qwen3_hybrid,
    "qwen3_5_text": _qwen3_hybrid,
    "qwen3_next": _qwen3_hybrid,
}
"""Linear layers of a model's blocks, the head not among them; none where some are not known."""


def list_block_linears(keys: Keys) -> tuple[TowerLinear, ...]:
    """Return the linear layers of unequal blocks, of the language model in a whole; none of a type that is not listed."""
    text = keys if keys.model_type in LINEARS or not keys.has_part("text_config") else keys.part("text_config")
    found = None if text is None else LINEARS.get(text.model_type)
    return () if text is None or found is None else found(text)
