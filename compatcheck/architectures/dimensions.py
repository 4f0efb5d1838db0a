"""Dimensions of a model by vocabulary name, each with the key it came from."""

from __future__ import annotations

from collections.abc import Mapping

_KEYS = {
    "model.model_type": ("model_type",),
    "model.hidden_size": ("hidden_size", "n_embd", "d_model"),
    "model.intermediate_size": ("intermediate_size",),
    "model.moe_intermediate_size": ("moe_intermediate_size",),
    "model.num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "model.num_attention_heads": ("num_attention_heads", "n_head"),
    "model.num_key_value_heads": ("num_key_value_heads", "num_attention_heads"),
    "model.vocab_size": ("vocab_size",),
    "model.max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "model.sliding_window": ("sliding_window",),
    "model.tie_word_embeddings": ("tie_word_embeddings",),
    "model.num_experts": ("num_experts", "num_local_experts"),
    "model.num_experts_per_token": ("num_experts_per_tok",),
    "model.load_dtype": ("torch_dtype", "dtype"),
}


def dimensions(config: Mapping[str, object]) -> dict[str, tuple[object, str]]:
    """Return the dimensions a configuration states."""
    found: dict[str, tuple[object, str]] = {}
    for fact, keys in _KEYS.items():
        for key in keys:
            if config.get(key) is not None:
                found[fact] = (config[key], key)
                break
    return found
