"""Models whose classes lie in their own repositories have the parameters that those print."""

from __future__ import annotations

import pytest

from compatcheck.architectures.count import count_parameters
from compatcheck.architectures.dimensions import dimensions

QWEN = {
    "model_type": "qwen",
    "architectures": ["QWenLMHeadModel"],
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "kv_channels": 128,
    "vocab_size": 151936,
    "no_bias": True,
    "tie_word_embeddings": False,
}
CHATGLM = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "hidden_size": 4096,
    "num_layers": 28,
    "num_attention_heads": 32,
    "vocab_size": 130528,
    "inner_hidden_size": 16384,
    "max_sequence_length": 2048,
}
CHATGLM3 = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "hidden_size": 4096,
    "num_layers": 28,
    "num_attention_heads": 32,
    "padded_vocab_size": 65024,
    "ffn_hidden_size": 13696,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "add_qkv_bias": True,
    "add_bias_linear": False,
    "rmsnorm": True,
    "post_layer_norm": True,
    "seq_length": 8192,
}
GLM4 = {
    **CHATGLM3,
    "architectures": ["ChatGLMForConditionalGeneration"],
    "num_layers": 40,
    "padded_vocab_size": 151552,
}
BAICHUAN = {
    "model_type": "baichuan",
    "architectures": ["BaiChuanForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 64000,
}
INTERNLM2 = {
    "model_type": "internlm2",
    "architectures": ["InternLM2ForCausalLM"],
    "bias": False,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 92544,
}
KIMI = {
    "model_type": "kimi_k2",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "vocab_size": 163840,
}

MIMO = {
    "model_type": "mimo",
    "architectures": ["MiMoForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151680,
    "attention_bias": True,
}
GLM5 = {
    "model_type": "glm_moe_dsa",
    "architectures": ["GlmMoeDsaForCausalLM"],
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "vocab_size": 154880,
}

NEMOTRON_NANO = {
    "model_type": "nemotron_h",
    "architectures": ["NemotronHForCausalLM"],
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "n_routed_experts": 128,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "vocab_size": 131072,
}
NEMOTRON_SUPER = {
    **NEMOTRON_NANO,
    "hidden_size": 4096,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba_num_heads": 128,
    "n_routed_experts": 512,
    "moe_intermediate_size": 2688,
    "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376,
}
KIMI_VISION = {
    "model_type": "kimi_k25",
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {**KIMI, "model_type": "kimi_k2"},
    "vision_config": {
        "vt_hidden_size": 1152,
        "vt_intermediate_size": 4304,
        "vt_num_hidden_layers": 27,
        "patch_size": 14,
        "merge_kernel_size": [2, 2],
        "init_pos_emb_height": 64,
        "init_pos_emb_width": 64,
    },
}


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (QWEN, 7_721_324_544),
        (CHATGLM, 6_173_286_400),
        (CHATGLM3, 6_243_584_000),
        (GLM4, 9_399_951_360),
        (BAICHUAN, 7_000_559_616),
        (INTERNLM2, 7_737_708_544),
        (KIMI, 1_026_408_209_408),
        (MIMO, 7_622_619_136),  # Qwen2ForCausalLM of transformers 5.24.0 built from these keys
        (GLM5, 743_911_199_232),
        (NEMOTRON_NANO, 31_577_937_344),  # NemotronHForCausalLM of transformers 5.24.0
        (NEMOTRON_SUPER, 120_668_687_360),
        (KIMI_VISION, 1_026_879_353_328),  # Kimi_K25ForConditionalGeneration of transformers 5.24.0
        ({**GLM5, "index_topk_freq": 4, "index_skip_topk_offset": 3}, 743_377_000_704),
    ],
    ids=[
        "Qwen-7B",
        "ChatGLM-6B",
        "ChatGLM3-6B",
        "GLM-4-9B",
        "Baichuan-7B",
        "InternLM2.5-7B",
        "Kimi-K2",
        "MiMo-7B",
        "GLM-5",
        "Nemotron-3-Nano",
        "Nemotron-3-Super",
        "Kimi-K2.5",
        "GLM-5.2",
    ],
)
def test_parameters_are_those_the_model_prints(config, total) -> None:
    counts = count_parameters(config)
    assert counts is not None
    assert counts.total == total


@pytest.mark.parametrize("config", [QWEN, CHATGLM, CHATGLM3, BAICHUAN, INTERNLM2, NEMOTRON_NANO])
def test_a_file_without_a_dimension_is_not_counted(config) -> None:
    without = {key: value for key, value in config.items() if key != "hidden_size"}
    assert count_parameters(without) is None


def test_dimensions_are_what_the_code_makes_of_the_keys() -> None:
    assert dimensions(QWEN)["model.intermediate_size"] == (11008, "intermediate_size")
    assert dimensions(CHATGLM)["model.intermediate_size"] == (16384, "inner_hidden_size")
    assert dimensions(CHATGLM)["model.gated_mlp"] == (False, "inner_hidden_size")
    assert "model.gated_mlp" not in dimensions(CHATGLM3)
    fused = [dimensions(config)["model.fused_gate_up"][0] for config in (CHATGLM3, CHATGLM, QWEN)]
    assert fused == [True, False, False]
    assert dimensions(CHATGLM)["model.max_position_embeddings"] == (2048, "max_sequence_length")
    found = dimensions(CHATGLM3)
    assert found["model.num_key_value_heads"] == (2, "multi_query_group_num")
    assert found["model.head_dim"] == (128, "kv_channels")
    assert found["model.vocab_size"] == (65024, "padded_vocab_size")
    assert found["model.num_hidden_layers"] == (28, "num_layers")


def test_latent_attention_has_no_one_width_of_a_head() -> None:
    assert "model.head_dim" not in dimensions(KIMI)
    newer = dimensions(
        {
            "model_type": "glm_moe_dsa",
            "hidden_size": 6144,
            "num_attention_heads": 64,
            "head_dim": 64,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
        }
    )
    assert "model.head_dim" not in newer
    assert newer["model.latent_cache_width"] == (576, "kv_lora_rank, qk_rope_head_dim")
    assert dimensions(KIMI)["model.num_experts"] == (384, "n_routed_experts")


def test_a_block_of_a_kind_that_nobody_read_is_not_counted() -> None:
    assert count_parameters({**NEMOTRON_NANO, "hybrid_override_pattern": "MEX*"}) is None
    assert (
        count_parameters({key: one for key, one in NEMOTRON_NANO.items() if key != "hybrid_override_pattern"}) is None
    )
    assert count_parameters({**KIMI_VISION, "vision_config": {}}) is None


def test_experts_of_nemotron_have_no_gate() -> None:
    counts = count_parameters(NEMOTRON_SUPER)
    assert counts is not None
    assert counts.expert == 40 * 512 * 2 * 2688 * 1024
