"""Draw small unusual configurations of every model type for the oracle: ``python draw_configs.py PER_TYPE [TYPE…]``.

Every key that our class defaults list may be set to an odd value, and any of them may be left out. Combinations that
transformers itself refuses fall out when the oracle is asked.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from tests import ROOT

DATA = ROOT / "compatcheck" / "architectures" / "data" / "class_defaults.jsonl"

SIZES: dict[str, list[Any]] = {
    "hidden_size": [96, 144, 192],
    "n_embd": [96, 144, 192],
    "d_model": [96, 144, 192],
    "embed_dim": [96, 144],
    "num_attention_heads": [2, 4, 6, 12],
    "n_head": [2, 4, 6, 12],
    "n_heads": [2, 4, 6, 12],
    "num_heads": [2, 4, 6],
    "encoder_attention_heads": [2, 4],
    "decoder_attention_heads": [2, 4],
    "attention_heads": [2, 4],
    "num_key_value_heads": [1, 2, None],
    "num_kv_heads": [1, 2, None],
    "kv_n_heads": [1, 2],
    "head_dim": [8, 20, 32, None],
    "d_kv": [8, 20],
    "global_head_dim": [24, 40],
    "intermediate_size": [152, 260],
    "n_inner": [152, 260, None],
    "ffn_dim": [152, 260],
    "d_ff": [152, 260],
    "decoder_ffn_dim": [152, 260],
    "encoder_ffn_dim": [136, 264],
    "ffn_hidden_size": [152, 260, None],
    "dim": [96, 144],
    "hidden_dim": [152, 260],
    "num_hidden_layers": [1, 2, 3, 5],
    "n_layer": [1, 2, 3],
    "n_layers": [1, 2, 3],
    "num_layers": [2, 3, 4],
    "encoder_layers": [1, 2, 3],
    "decoder_layers": [1, 2, 3],
    "num_decoder_layers": [1, 2, 3, None],
    "depth": [1, 2, 3],
    "vocab_size": [1013, 997, 1200],
    "max_position_embeddings": [64, 130],
    "n_positions": [64, 130],
    "num_local_experts": [1, 3, 4],
    "num_experts": [1, 3, 4],
    "n_routed_experts": [2, 4],
    "moe_num_experts": [3, 4],
    "moe_intermediate_size": [40, 56],
    "shared_expert_intermediate_size": [24, 48],
    "n_shared_experts": [1, 2],
    "num_shared_experts": [1, 2],
    "moe_num_shared_experts": [1, 2],
    "shared_intermediate_size": [24, 48],
    "moe_ffn_hidden_size": [40, 56],
    "num_experts_per_tok": [1, 2],
    "moe_k": [1, 2],
    "first_k_dense_replace": [0, 1, 2],
    "decoder_sparse_step": [1, 2],
    "mlp_only_layers": [[], [1], [0, 2], None],
    "word_embed_proj_dim": [48, None],
    "kv_lora_rank": [24],
    "q_lora_rank": [28, None],
    "qk_rope_head_dim": [8, 16],
    "qk_nope_head_dim": [12, 24],
    "v_head_dim": [20, 12],
    "num_ln_in_parallel_attn": [1, 2, None],
    "linear_key_head_dim": [16],
    "linear_value_head_dim": [24],
    "linear_num_key_heads": [2],
    "linear_num_value_heads": [4],
    "linear_conv_kernel_dim": [3, 4],
    "type_vocab_size": [1, 3],
    "state_size": [8],
    "expand": [2, 3],
    "conv_kernel": [3, 4],
    "time_step_rank": [5],
    "mamba_d_state": [8],
    "mamba_d_conv": [3, 4],
    "mamba_expand": [2, 3],
    "mamba_dt_rank": [5],
    "interleave_moe_layer_step": [1, 2],
    "intermediate_size_mlp": [144],
    "num_mel_bins": [40, 80],
    "max_source_positions": [50, 60],
    "max_target_positions": [44, 60],
    "embedding_size": [40, 64],
    "moe_layer_start_index": [0, 1],
    "moe_layer_interval": [1, 2],
    "block_ff_dim": [150, 260],
    "conv_L_cache": [3, 4],
    "image_size": [56, 84],
    "patch_size": [14],
    "num_channels": [3, 1],
    "out_hidden_size": [96],
    "num_dense_layers": [0, 1],
    "relative_attention_num_buckets": [16, 32],
    "partial_rotary_factor": [0.5],
}
"""Odd values by key; a key that is not here is toggled when it is a boolean and left out otherwise."""
LAYER_TYPES = {
    "lfm2": ("conv", "full_attention"),
    "lfm2_moe": ("conv", "full_attention"),
    "minimax": ("linear_attention", "full_attention"),
    "qwen3_5_moe_text": ("linear_attention", "full_attention"),
    "qwen3_5_text": ("linear_attention", "full_attention"),
    "qwen3_next": ("linear_attention", "full_attention"),
}
FIXED = {
    "is_encoder_decoder",
    "use_cache",
    "output_attentions",
    "is_decoder",
    "add_cross_attention",
    "tie_encoder_decoder",
    "output_router_logits",
    "slow_but_exact",
    "use_return_dict",
}


def draw(
    rng: random.Random,
    model_type: str,
    row: dict[str, Any],
    rows: dict[str, Any],
    kept: float = 0.75,
) -> dict[str, Any]:
    """Draw one configuration of a row of class defaults."""
    config: dict[str, Any] = {}
    for key, default in row.get("values", {}).items():
        if key in SIZES and (default is None or type(default) is not bool):
            if rng.random() < kept:
                config[key] = rng.choice(SIZES[key])
        elif isinstance(default, bool) and key not in FIXED and rng.random() < 0.5:
            config[key] = rng.random() < 0.5
    if "vocab_size" in config:
        config["pad_token_id"] = 0  # the default of some types lies beyond a small vocabulary
    if "num_layers" in config and "attention_types" in row["values"]:
        config["attention_types"] = [[["global"], config["num_layers"]]]
    if "num_attention_heads" in config and "head_dim" not in row["values"] and rng.random() < 0.2:
        config["head_dim"] = 20  # not a field of the class, read by many models all the same
    for other, field in row.get("aliases", {}).items():
        if field in config and other not in config and rng.random() < 0.2:
            config[other] = config.pop(field)
    if config.get("head_dim", 0) is None and row["values"].get("head_dim") is not None:
        del config["head_dim"]
    if "layer_types" in row["values"] and isinstance(layers := config.get("num_hidden_layers"), int):
        kinds = LAYER_TYPES.get(model_type)
        if kinds and (rng.random() < 0.5 or model_type == "lfm2_moe"):
            config["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
    if model_type in {"qwen3_vl_text", "qwen3_vl_moe_text"}:
        config["rope_scaling"] = {"rope_type": "default", "mrope_section": [24, 20, 20]}  # 4.57 does not start without
    if model_type == "mllama_text_model":
        config["rope_scaling"] = {"rope_type": "default"}
    if model_type in {"qwen2_vl_text", "qwen2_5_vl_text"}:
        config["rope_scaling"] = {"type": "mrope", "mrope_section": [16, 24, 24]}
    if model_type == "mt5":
        config["tie_word_embeddings"] = True  # untied, releases disagree
    if model_type == "dbrx":
        config["attn_config"] = {"rope_theta": 10000.0, "kv_n_heads": rng.choice([1, 2])}  # 5.23 does not start without
    if model_type == "mamba2":
        config.update(hidden_size=96, expand=2, head_dim=rng.choice([12, 24]))
        config["num_heads"] = 192 // config["head_dim"]
    for name, preset in row.get("parts", {}).items():
        if name in config:
            continue
        if "model_type" not in preset and rng.random() < 0.9:
            config[name] = draw(rng, "", {"values": preset}, rows, kept)
        if preset.get("model_type") in rows and rng.random() < 0.9:
            config[name] = draw(rng, preset["model_type"], rows[preset["model_type"]], rows, kept)
            if rng.random() < 0.7:
                config[name]["model_type"] = preset["model_type"]
    return config


def main() -> None:
    """Print a bare configuration and PER_TYPE odd ones of each type."""
    rows = {}
    for line in DATA.read_text("utf-8").splitlines()[1:]:
        name, row = line.split(" ", 1)
        rows[json.loads(name)] = json.loads(row)
    for model_type in sys.argv[2:] or rows:
        rng = random.Random(f"{model_type}-{sys.argv[1]}")
        print(json.dumps({"model_type": model_type}))
        for number in range(int(sys.argv[1])):
            kept = (1.0, 0.75)[number % 2]
            print(json.dumps({"model_type": model_type, **draw(rng, model_type, rows[model_type], rows, kept)}))


if __name__ == "__main__":
    main()
