"""What a configuration, a source line or a place lets derive, and what it must not claim."""

from __future__ import annotations

import pytest

from compatcheck.core.facts import Fact
from compatcheck.frameworks.model import configuration as model
from compatcheck.oom.explain import explain
from compatcheck.oom.message import read_messages
from tests.unit.oom.printed_messages import print_message
from tests.unit.oom.test_explain import facts_of

GLM4 = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "num_layers": 40,
    "num_attention_heads": 32,
    "padded_vocab_size": 151552,
    "ffn_hidden_size": 13696,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "add_qkv_bias": True,
    "seq_length": 131072,
}
QWEN = {
    "model_type": "qwen",
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "kv_channels": 128,
    "vocab_size": 151936,
}
CHATGLM = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "num_layers": 28,
    "num_attention_heads": 32,
    "vocab_size": 130528,
    "inner_hidden_size": 16384,
}
QWEN2_MOE = {
    "model_type": "qwen2_moe",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "moe_intermediate_size": 2560,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
}
LLAMA_32_3B = {
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
LOADING = (
    "/env/transformers/modeling_utils.py",
    900,
    "_load_state_dict_into_meta_model",
    "set_module_tensor_to_device(",
)
LOSS = ("/env/transformers/loss/loss_utils.py", 46, "ForCausalLMLoss", "loss = fixed_cross_entropy(")


def describe(config: dict, **stated) -> dict[str, Fact]:
    (document,) = model.read(config, "config.json").documents
    facts = {statement.fact: Fact(statement.fact, statement.value, "model") for statement in document.statements}
    return {**facts, **state(**stated)}


def state(**stated) -> dict[str, Fact]:
    return {key.replace("__", "."): Fact(key.replace("__", "."), value, "set") for key, value in stated.items()}


def read(asked: str, facts, *frames, era: str = "2.2", **sizes):
    lines = ["Traceback (most recent call last):"] if frames else []
    for file, line, function, code in frames:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {code}"]
    (message,) = read_messages("\n".join([*lines, print_message(era, {"asked": asked, **sizes})]))
    return explain(message, facts)


def test_a_model_that_fuses_gate_and_up_itself_has_the_fused_weight() -> None:
    reading = read("214.00 MiB", describe(GLM4))
    assert {match.name for match in reading.matches} == {
        "fp32 gate, up or down projection weight",
        "16-bit fused gate and up projection weight",
    }
    assert reading.outcome == "tied"


def test_stated_dtypes_leave_out_the_others() -> None:
    dtypes = {"model__load_dtype": "bfloat16", "training__param_dtype": "bfloat16", "training__mixed_precision": "bf16"}
    reading = read("214.00 MiB", describe(GLM4, **dtypes))
    assert reading.outcome == "named"
    assert [match.name for match in reading.matches] == ["16-bit fused gate and up projection weight"]


def test_caches_of_a_full_length_are_candidates() -> None:
    facts = facts_of("llama-3-8b", training__micro_batch_size=1, training__sequence_length=131072)
    reading = read("1024.00 MiB", facts)
    names = {match.name for match in reading.matches}
    assert {"16-bit hidden states", "16-bit keys or values of all heads"} <= names
    assert reading.outcome != "named"
    frame = ("/env/torchtune/modules/transformer.py", 400, "setup_caches", "layer.setup_caches(")
    reading = read("1024.00 MiB", facts, frame)
    assert reading.place.part == "kv_cache"
    assert [match.name for match in reading.matches] == ["16-bit keys or values of all heads"]


def test_small_weights_are_evidence_while_nothing_but_weights_is_loaded() -> None:
    facts = facts_of("llama-2-7b", model__load_dtype="float16")
    reading = read("32.00 MiB", facts, LOADING)
    assert (reading.outcome, reading.matches[0].name) == ("named", "16-bit query or attention output projection weight")
    assert read("32.00 MiB", facts).outcome == "not_derivable"


@pytest.mark.parametrize(
    ("config", "asked", "name"),
    [
        (QWEN, "96.00 MiB", "16-bit fused query, key and value weight"),
        (QWEN, "86.00 MiB", "16-bit gate, up or down projection weight"),
        (CHATGLM, "128.00 MiB", "16-bit gate, up or down projection weight"),
        (GLM4, "214.00 MiB", "16-bit fused gate and up projection weight"),
    ],
)
def test_weights_have_the_widths_that_the_models_own_code_gives_them(config, asked, name) -> None:
    reading = read(asked, describe(config, model__load_dtype="float16"), LOADING)
    assert [match.name for match in reading.matches] == [name]
    assert reading.outcome == "named"


def test_packed_weights_are_not_named_unless_quantisation_is_stated() -> None:
    facts = facts_of("llama-2-7b")
    assert read("22.00 MiB", facts, LOADING).outcome != "named"


def test_the_weight_of_one_expert_is_a_candidate() -> None:
    reading = read("18.00 MiB", describe(QWEN2_MOE), LOADING)
    assert [match.name for match in reading.matches] == ["16-bit gate, up or down weight of one expert"]


def test_zero3_gathers_several_weights_at_once() -> None:
    frame = (
        "/env/deepspeed/runtime/zero/partition_parameters.py",
        1200,
        "all_gather_coalesced",
        "flat_tensor = torch.empty(",
    )
    facts = facts_of("qwen2.5-7b", training__zero_stage=3)
    names = [match.name for match in read("32.00 MiB", facts, frame).matches]
    assert "16-bit gathered query, key and value weights" in names
    assert not read("32.00 MiB", facts_of("qwen2.5-7b", training__zero_stage=2), frame).matches


def test_no_library_makes_an_8_bit_buffer_of_all_parameters() -> None:
    facts = facts_of("llama-2-7b", hardware__world_size=4)
    reading = read("6.28 GiB", facts)
    assert [match.name for match in reading.matches] == ["fp32 partition of all parameters over 4 ranks"]


def test_the_shard_of_one_block_is_a_candidate() -> None:
    facts = describe(LLAMA_32_3B, hardware__world_size=4)
    names = [match.name for match in read("98.00 MiB", facts).matches]
    assert "fp32 shard of one block over 4 ranks" in names


def test_prompt_and_response_make_one_length() -> None:
    stated = {
        "training__micro_batch_size": 8,
        "training__max_prompt_length": 4096,
        "training__max_response_length": 500,
        "training__sequence_length": 6144,
    }
    reading = read("20.83 GiB", facts_of("qwen2.5-7b", **stated), LOSS)
    (match,) = reading.matches
    assert (reading.outcome, match.name, match.shape) == ("named", "fp32 logits", (8, 4596, 152064))
    assert "max_prompt_length + max_response_length" in match.formula


@pytest.mark.parametrize(
    ("asked", "code", "shape", "inferred"),
    [
        (
            "424.00 MiB",
            "buf0 = empty_strided_cuda((54080, 4096), (4096, 1), torch.bfloat16)",
            (54080, 4096),
            (),
        ),
        ("58.15 GiB", "assert_size_stride(buf, ((s10,1,76032), float32)", (205292, 1, 76032), "s10 between"),
        ("4.00 GiB", "out = torch.zeros((32, 1024, 32768), dtype=torch.float32)", (32, 1024, 32768), ()),
    ],
)
def test_shapes_of_the_source_line_are_read_literally(asked, code, shape, inferred) -> None:
    frame = ("/cache/torchinductor/ab/cab.py", 40, "call", code)
    reading = read(asked, {}, frame)
    assert reading.outcome == "named"
    (match,) = reading.matches
    assert match.shape[-1] == shape[-1]
    if inferred:
        assert match.inferred[0].startswith(inferred)
    else:
        assert (match.shape, match.inferred) == (shape, ())


def test_a_shape_of_another_size_is_no_evidence() -> None:
    frame = (
        "/cache/torchinductor/ab/cab.py",
        40,
        "call",
        "buf0 = empty_strided_cuda((54080, 4096), (4096, 1), torch.bfloat16)",
    )
    assert read("1.00 GiB", {}, frame).outcome == "not_derivable"


def test_scores_of_eager_attention_tell_the_length() -> None:
    eager = (
        "/env/transformers/models/llama/modeling_llama.py",
        190,
        "eager_attention_forward",
        "attn_weights = torch.matmul(",
    )
    facts = {**facts_of("llama-3-8b"), **state(model__max_position_embeddings=131072)}
    reading = read("112.50 GiB", facts, eager)
    assert reading.outcome == "tied"
    assert {match.name for match in reading.matches} == {"fp32 attention scores", "16-bit attention scores"}
    assert all("a length" in match.inferred[0] for match in reading.matches)
    fused = (
        "/env/transformers/integrations/sdpa_attention.py",
        80,
        "sdpa_attention_forward",
        "attn_output = torch.nn.functional.sdpa(",
    )
    assert read("112.50 GiB", facts, fused).outcome == "not_derivable"


@pytest.mark.parametrize(
    "frame",
    [
        ("/slime/utils/ppo_utils.py", 80, "calculate_log_probs_and_entropy", "entropy = compute_entropy(logits)"),
        (
            "/env/megatron/core/tensor_parallel/cross_entropy.py",
            30,
            "vocab_parallel_softmax",
            "exp_logits = torch.exp(x)",
        ),
        ("/env/megatron/core/transformer/module.py", 140, "float_conversion", "val = val.float()"),
    ],
)
def test_logits_of_megatron_are_recognised(frame) -> None:
    reading = read("9.28 GiB", facts_of("qwen2.5-7b"), frame)
    assert "logits" in reading.matches[0].name
    assert reading.place.part in {"log_probabilities", "logits"}
    if "megatron" in frame[0]:
        assert (reading.outcome, reading.needs) == ("tied", ("training.tensor_parallel",))


def test_an_engine_that_is_stated_counts_where_no_frame_says_otherwise() -> None:
    facts = facts_of("qwen2.5-7b", rollout__engine="vllm", model__load_dtype="bfloat16")
    torch = (
        "/env/torch/nn/parameter.py",
        49,
        "__new__",
        "return torch.Tensor._make_subclass(cls, data, requires_grad)",
    )
    assert [match.name for match in read("260.00 MiB", facts, torch).matches] == [
        "16-bit fused gate and up projection weight"
    ]


def test_the_type_of_the_model_is_told_from_the_frames() -> None:
    frame = ("/env/transformers/models/qwen2/modeling_qwen2.py", 800, "forward", "logits = self.lm_head(hidden_states)")
    reading = read("9.28 GiB", {}, frame)
    assert reading.needs == ("--model",)
    assert "the code of qwen2" in reading.reason
