"""Dimensions are found under any of their names, and every one says which key it came from."""

from __future__ import annotations

import pytest

from compatcheck.architectures.count import known_model_types
from compatcheck.architectures.dimensions import CLASS_DEFAULT, dimensions
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.rules.values import parse_value

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def test_values_of_the_file_carry_their_key():
    found = dimensions(LLAMA)
    assert found["model.hidden_size"] == (8192, "hidden_size")
    assert found["model.num_key_value_heads"] == (8, "num_key_value_heads")
    assert found["model.load_dtype"] == ("bfloat16", "torch_dtype")
    assert found["model.architecture"] == ("LlamaForCausalLM", "architectures")
    assert found["model.model_type"] == ("llama", "model_type")


def test_keys_left_out_are_class_defaults():
    found = dimensions(LLAMA)
    assert found["model.intermediate_size"] == (11008, CLASS_DEFAULT)
    assert found["model.tie_word_embeddings"] == (False, CLASS_DEFAULT)
    assert found["model.use_cache"] == (True, CLASS_DEFAULT)
    assert found["model.quantization"] == (None, CLASS_DEFAULT)
    assert "model.load_dtype" not in dimensions({"model_type": "llama"})


def test_a_derived_head_width_names_both_keys():
    assert dimensions(LLAMA)["model.head_dim"] == (128, "hidden_size, num_attention_heads")
    assert dimensions({**LLAMA, "head_dim": 64})["model.head_dim"] == (64, "head_dim")


def test_global_layers_may_have_wider_heads():
    config = {"model_type": "gemma4", "text_config": {"head_dim": 256, "global_head_dim": 512}}
    found = dimensions(config)
    assert found["model.head_dim"] == (256, "text_config.head_dim")
    assert found["model.global_head_dim"] == (512, "text_config.global_head_dim")
    assert "model.global_head_dim" not in dimensions(LLAMA)


def test_images_may_be_blocks():
    config = {"model_type": "gemma4", "text_config": {"use_bidirectional_attention": "vision"}}
    assert dimensions(config)["model.image_blocks"] == (True, "text_config.use_bidirectional_attention")
    config["text_config"]["use_bidirectional_attention"] = None
    assert dimensions(config)["model.image_blocks"][0] is False
    assert "model.image_blocks" not in dimensions(LLAMA)


def test_key_value_heads_default_to_the_heads_of_the_file():
    config = {"model_type": "llama", "num_attention_heads": 40}
    assert dimensions(config)["model.num_key_value_heads"] == (40, "num_attention_heads")


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        ({"model_type": "gpt2", "n_embd": 1600}, "hidden_size", (1600, "n_embd")),
        ({"model_type": "gpt2", "n_embd": 1600}, "intermediate_size", (6400, "n_embd")),
        ({"model_type": "gpt2", "n_layer": 48}, "num_hidden_layers", (48, "n_layer")),
        ({"model_type": "mpt", "max_seq_len": 4096}, "max_position_embeddings", (4096, "max_seq_len")),
        ({"model_type": "opt", "ffn_dim": 7}, "intermediate_size", (7, "ffn_dim")),
        ({"model_type": "falcon"}, "num_key_value_heads", (1, CLASS_DEFAULT)),
        (
            {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 8},
            "num_key_value_heads",
            (8, "num_kv_heads"),
        ),
        ({"model_type": "gpt_bigcode", "multi_query": False, "n_head": 6}, "num_key_value_heads", (6, "n_head")),
        ({"model_type": "mixtral", "num_local_experts": 4}, "num_experts", (4, "num_local_experts")),
        ({"model_type": "mixtral", "intermediate_size": 9}, "moe_intermediate_size", (9, "intermediate_size")),
        ({"model_type": "deepseek_v3"}, "num_experts", (256, CLASS_DEFAULT)),
        ({"model_type": "qwen3_moe"}, "num_experts_per_token", (8, CLASS_DEFAULT)),
        (
            {"model_type": "dbrx", "ffn_config": {"moe_num_experts": 16}},
            "num_experts",
            (16, "ffn_config.moe_num_experts"),
        ),
        ({"model_type": "mistral", "sliding_window": None}, "sliding_window", (None, "sliding_window")),
        ({"model_type": "mistral"}, "sliding_window", (4096, CLASS_DEFAULT)),
        ({"model_type": "qwen2", "sliding_window": 128}, "sliding_window", (None, CLASS_DEFAULT)),
        ({"model_type": "qwen2", "use_sliding_window": False}, "sliding_window", (None, "use_sliding_window")),
        (
            {"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True},
            "sliding_window",
            (128, "sliding_window"),
        ),
        (
            {"model_type": "qwen3_next", "full_attention_interval": 4, "num_hidden_layers": 48},
            "attention_layers",
            (12, "full_attention_interval"),
        ),
        (
            {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3},
            "attention_layers",
            (1, "layer_types"),
        ),
        (
            {
                "model_type": "qwen3_5_text",
                "layer_types": ["linear_attention", "full_attention"] * 2,
                "num_hidden_layers": 4,
            },
            "attention_layers",
            (2, "layer_types"),
        ),
        ({"model_type": "qwen2_vl"}, "has_conv3d", (True, "model_type")),
        ({"model_type": "llama"}, "has_conv3d", (False, "model_type")),
        ({"model_type": "llama", "dtype": "float16", "torch_dtype": "float32"}, "load_dtype", ("float16", "dtype")),
        (
            {"model_type": "llama", "_attn_implementation": "sdpa"},
            "attn_implementation",
            ("sdpa", "_attn_implementation"),
        ),
        ({"model_type": "llama", "output_attentions": True}, "output_attentions", (True, "output_attentions")),
    ],
)
def test_names_of_other_model_types_are_read(config, name, expected):
    assert dimensions(config)[f"model.{name}"] == expected


def test_layers_that_all_attend_are_not_counted_apart():
    assert "model.attention_layers" not in dimensions(LLAMA)
    config = {"model_type": "gemma2", "layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
    assert "model.attention_layers" not in dimensions(config)


def test_the_language_model_of_a_multimodal_one_is_read():
    config = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "torch_dtype": "bf16"},
        "vision_config": {"hidden_size": 32},
    }
    found = dimensions(config)
    assert found["model.hidden_size"] == (64, "text_config.hidden_size")
    assert found["model.num_key_value_heads"] == (4, "text_config.num_attention_heads")
    assert found["model.load_dtype"] == ("bfloat16", "text_config.torch_dtype")
    assert found["model.intermediate_size"] == (11008, CLASS_DEFAULT)


def test_the_language_model_may_stand_at_the_top():
    found = dimensions({"model_type": "qwen2_5_vl", "hidden_size": 2048, "num_attention_heads": 16})
    assert found["model.hidden_size"] == (2048, "hidden_size")
    assert found["model.num_key_value_heads"] == (8, CLASS_DEFAULT)


def test_a_tie_that_the_parts_disagree_about_is_not_told():
    config = {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}
    assert "model.tie_word_embeddings" not in dimensions(config)


def test_an_unknown_type_says_what_the_file_says_and_nothing_else():
    config = {
        "model_type": "new",
        "llm_config": {"n_embd": 96, "n_head": 6},
        "quantization_config": {"quant_method": "awq"},
    }
    assert dimensions(config) == {
        "model.model_type": ("new", "model_type"),
        "model.hidden_size": (96, "llm_config.n_embd"),
        "model.num_attention_heads": (6, "llm_config.n_head"),
        "model.num_key_value_heads": (6, "llm_config.n_head"),
        "model.head_dim": (16, "llm_config.n_embd, llm_config.n_head"),
        "model.quantization": ("awq", "quantization_config"),
    }


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "fp4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        # as nvidia/Llama-3.1-8B-Instruct-NVFP4 and RedHatAI/Qwen3-8B-NVFP4 have it, and routers left out one by one
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"]}, "nvfp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "ignore": ["model.layers.0.mlp.gate", "re:.*router$", "re:.*lm_head"],
            },
            "fp8",
        ),
    ],
)
def test_quantisation_is_named(quantization, expected):
    found = dimensions({"model_type": "llama", "quantization_config": quantization})
    assert found["model.quantization"] == (expected, "quantization_config")


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "format": "mixed-precision"},
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},  # of 4 bits or 8
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"a": {}, "b": {}}},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0.self_attn*"]},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
    ],
)
def test_a_quantisation_that_is_unknown_or_takes_a_part_is_not_named(quantization):
    assert "model.quantization" not in dimensions({"model_type": "llama", "quantization_config": quantization})


@pytest.mark.parametrize(
    ("algorithm", "left_out", "config", "expected"),
    [
        ("NVFP4", ["lm_head"], {}, "nvfp4"),
        ("FP8", [], {}, "fp8"),
        ("NVFP4", ["model.layers.0.self_attn*"], {}, None),
        ("NVFP4", ["lm_head"], {"quantization_config": {"quant_method": "fp8"}}, "fp8"),
    ],
)
def test_quantisation_is_named_by_the_file_beside_where_this_one_is_silent(algorithm, left_out, config, expected):
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm, "exclude_modules": left_out}}
    found = dimensions({"model_type": "llama", "hf_quant_config.json": beside, **config}).get("model.quantization")
    assert (None if found is None else found[0]) == expected


@pytest.mark.parametrize("model_type", known_model_types())
def test_every_value_is_one_the_vocabulary_takes(model_type):
    found = dimensions({"model_type": model_type})
    assert {"model.hidden_size", "model.num_hidden_layers", "model.vocab_size", "model.has_conv3d"} <= set(found)
    for name, (value, key) in found.items():
        assert parse_value(name, value, Source("config.json", key)) == value


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "llama", "hidden_size": "big"}, "hidden_size"),
        ({"model_type": "llama", "torch_dtype": "float17"}, "torch_dtype"),
        ({"model_type": "llama", "torch_dtype": 16}, "torch_dtype"),
        ({"model_type": "llama", "use_cache": "no"}, "use_cache"),
        ({"model_type": "llama", "sliding_window": -1}, None),
        ({"model_type": "mistral", "sliding_window": -1}, "sliding_window"),
        ({"model_type": "llama", "quantization_config": "nf4"}, "quantization_config"),
        ({"model_type": "new", "n_head": -3}, "n_head"),
        ({"model_type": "new", "text_config": {"hidden_size": "x"}}, "text_config.hidden_size"),
        ({"model_type": "llava", "text_config": 3}, "text_config"),
        ({"model_type": "new", "text_config": 3}, "text_config"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_key(config, key):
    if key is None:
        key = "sliding_window"
    with pytest.raises(InputError) as caught:
        dimensions(config, "config.json")
    assert caught.value.source.key == key


def test_blocks_of_an_encoder_and_a_decoder_are_counted_together() -> None:
    assert dimensions({"model_type": "t5", "num_layers": 24})["model.num_hidden_layers"] == (48, "num_layers")
    uneven = {"model_type": "t5", "num_layers": 24, "num_decoder_layers": 6}
    assert dimensions(uneven)["model.num_hidden_layers"] == (30, "num_layers")
    speech = {
        "model_type": "whisper",
        "num_hidden_layers": 32,
        "encoder_layers": 32,
        "decoder_layers": 4,
        "max_source_positions": 1500,
    }
    found = dimensions({**speech, "num_mel_bins": 128})
    assert found["model.num_hidden_layers"][0] == 36
    assert found["model.encoder_positions"] == (1500, "max_source_positions")
    assert "model.encoder_positions" not in dimensions({"model_type": "bart", "encoder_layers": 6, "decoder_layers": 6})


@pytest.mark.parametrize(
    ("keys", "layers", "attending"),
    [
        ({"num_hidden_layers": 6, "hybrid_override_pattern": "MEM*EM"}, 6, 1),
        ({"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, 4, 1),
        ({"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]}, 4, 1),
    ],
)
def test_blocks_with_attention_are_those_of_a_pattern(keys: dict, layers: int, attending: int) -> None:
    found = dimensions({"model_type": "nemotron_h", "hidden_size": 64, "num_attention_heads": 2, **keys})
    assert found["model.num_hidden_layers"][0] == layers
    assert found["model.attention_layers"][0] == attending
