"""Reading a run: what is taken, assumed, needed or refused."""

import pytest

from compatcheck.architectures.count import count_parameters
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import UsageError
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.frameworks.model.configuration import make_model_document
from compatcheck.memory.read_run import read_run
from tests.unit.memory.traits import with_traits

LLAMA = {
    "model.model_type": "llama",
    "model.hidden_size": 4096,
    "model.intermediate_size": 11008,
    "model.num_hidden_layers": 32,
    "model.num_attention_heads": 32,
    "model.num_key_value_heads": 32,
    "model.vocab_size": 32000,
    "model.parameters": 6738415616,
    "training.param_dtype": "bfloat16",
    "training.micro_batch_size": 1,
    "training.sequence_length": 2048,
}


def with_packages(**versions):
    packages = {name: Package(name, version, Source("test")) for name, version in versions.items()}
    return Environment("test", packages, complete=False)


def assumed(reading):
    return {assumption.fact: assumption.value for assumption in reading.assumptions}


def test_what_nobody_stated_is_an_assumption_with_a_reason():
    reading = read_run(LLAMA)
    assert assumed(reading) == {
        "model.attn_implementation": "sdpa",
        "hardware.world_size": 1,
        "training.sharding": "none",
        "training.peft": None,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "foreach",
        "training.gradient_checkpointing": False,
        "training.gradient_accumulation_steps": 1,
        "training.loss_implementation": "cross_entropy",
    }
    assert all(assumption.reason for assumption in reading.assumptions)


def test_a_stated_fact_is_no_assumption():
    facts = {**LLAMA, "training.optimizer": "sgd", "training.peft": None, "training.gradient_checkpointing": False}
    assert not {"training.optimizer", "training.peft", "training.gradient_checkpointing"} & set(
        assumed(read_run(facts))
    )


def test_resolved_facts_and_plain_values_read_the_same():
    resolved = {name: Fact(name, value, "set") for name, value in LLAMA.items()}
    assert read_run(resolved).run == read_run(LLAMA).run


@pytest.mark.parametrize(
    "missing", ["model.hidden_size", "model.num_hidden_layers", "model.vocab_size", "training.sequence_length"]
)
def test_what_cannot_be_assumed_is_needed(missing):
    reading = read_run({name: value for name, value in LLAMA.items() if name != missing})
    assert reading.run is None
    assert missing in reading.needs


def test_sharding_needs_the_number_of_ranks():
    assert read_run({**LLAMA, "training.zero_stage": 3}).needs == ("hardware.world_size",)


def test_a_missing_micro_batch_is_one_sequence_and_said():
    reading = read_run({name: value for name, value in LLAMA.items() if name != "training.micro_batch_size"})
    assert assumed(reading)["training.micro_batch_size"] == 1


@pytest.mark.parametrize("name", ["training.sequence_length", "training.micro_batch_size", "model.hidden_size"])
@pytest.mark.parametrize("value", [0, -1, 2**63])
def test_an_impossible_size_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=name):
        read_run({**LLAMA, name: value})


def test_a_micro_batch_over_all_ranks_is_divided():
    facts = {
        **LLAMA,
        "training.sharding": "fsdp",
        "hardware.world_size": 4,
        "training.micro_batch_size": 64,
        "training.micro_batch_is_global": True,
    }
    assert read_run(facts).run.micro_batch == 16


def test_ranks_that_share_a_sequence_are_no_data_parallel_ranks():
    facts = {**LLAMA, "hardware.world_size": 16, "training.tensor_parallel": 4, "training.context_parallel": 2}
    run = read_run(facts).run
    assert run.parallel.data == 2
    assert run.tokens == 1024


def test_parameters_are_counted_from_dimensions_and_that_is_said():
    facts = {name: value for name, value in LLAMA.items() if name != "model.parameters"}
    reading = read_run({**facts, "model.tie_word_embeddings": False})
    assert reading.run.model.parameters == 6738415616
    assert "model.parameters" in assumed(reading)


@pytest.mark.parametrize(("peft", "expected"), [("0.5.0", 4), ("0.6.0", 2), ("0.11.1", 2), ("0.12.0", 4)])
def test_the_dtype_of_adapters_follows_the_release_of_peft(peft, expected):
    facts = {**LLAMA, "training.peft": "lora", "model.load_dtype": "bfloat16"}
    assert read_run(facts, with_packages(peft=peft)).run.adapter_bytes == expected


def test_deepspeed_casts_adapters_with_the_module():
    facts = {**LLAMA, "training.peft": "lora", "training.zero_stage": 2, "hardware.world_size": 2}
    assert read_run(facts, with_packages(peft="0.12.0")).run.adapter_bytes == 2


def test_mixed_precision_starts_from_float32_weights():
    facts = {name: value for name, value in LLAMA.items() if name != "training.param_dtype"}
    precision = read_run({**facts, "training.mixed_precision": "bf16"}).run.precision
    assert (precision.stored, precision.compute, precision.residual, precision.autocast) == (4, 2, 4, True)


@pytest.mark.parametrize(("sharding", "world"), [(None, 8), (None, 1), ("none", 1)])
def test_an_engine_of_deepspeed_at_stage_0_keeps_16_bit_weights_and_whole_masters(sharding, world):
    facts = {**LLAMA, "training.zero_stage": 0, "training.mixed_precision": "fp16", "hardware.world_size": world}
    del facts["training.param_dtype"]
    run = read_run(facts | ({} if sharding is None else {"training.sharding": sharding})).run
    assert run is not None
    assert (run.parallel.sharding, run.parallel.stage) == ("zero", 0)
    assert (run.precision.stored, run.precision.gradient, run.precision.master) == (2, 2, 4)


def test_zero_keeps_float32_masters_unless_told_otherwise():
    facts = {**LLAMA, "training.zero_stage": 3, "hardware.world_size": 8}
    assert read_run(facts).run.precision.master == 4
    assert read_run({**facts, "training.bf16_master_weights_and_grads": True}).run.precision.master == 0
    assert read_run({**facts, "training.master_dtype": None}).run.precision.master == 0


def test_adapters_of_parameters_are_counted_for_each_expert_or_asked_for():
    names = {"training.peft": "lora", "training.lora_rank": 16, "training.lora_target_modules": ("q_proj",)}
    experts = {"model.num_experts": 8, "model.num_experts_per_token": 2, "model.moe_intermediate_size": 1000}

    def read(*parameters, **changed):
        return read_run({**LLAMA, **names, **experts, "training.lora_target_parameters": parameters, **changed})

    one = 32 * 8 * 16
    both = read("experts.gate_up_proj", "mlp.experts.down_proj").run.adapters - read().run.adapters
    assert both == one * (4096 + 2000 + 1000 + 4096)
    assert read("experts.down_proj").run.adapters - read().run.adapters == one * (1000 + 4096)
    assert read("experts.weight").needs == ("model.trainable_parameters",)
    assert read("experts.weight", **{"model.trainable_parameters": 7}).run.trainable == 7


def test_weights_stored_in_a_way_that_nobody_sizes_are_said():
    for more, said in (({}, True), ({"model.quantization": None}, False)):
        run = read_run({**LLAMA, "model.stored_quantization": "gguf", **more}).run
        assert ("stored_otherwise" in run.unpriced) is said


def test_what_a_quantised_base_leaves_unquantised_becomes_float32():
    facts = {**LLAMA, "training.peft": "qlora", "model.quantization": "nf4", "training.mixed_precision": "bf16"}
    assert read_run(facts).run.precision.unquantised == 4
    sharded = {**facts, "training.sharding": "fsdp", "hardware.world_size": 2}
    assert read_run(sharded).run.precision.unquantised == 2


@pytest.mark.parametrize(
    ("framework", "quantization", "trl", "expected"),
    [
        ("axolotl", "nf4", None, 2),
        ("llamafactory", "int8", None, 2),
        ("ms_swift", "nf4", None, 2),
        ("trl", "nf4", "0.19.0", 2),  # embedding and head are cast back to bfloat16
        ("trl", "int8", "0.19.0", 4),
        ("trl", "int8", "0.24.0", 4),
        ("trl", "int8", "0.25.0", 2),
        ("hf_trainer", "nf4", None, 4),
    ],
)
def test_which_programs_cast_what_is_not_quantised(framework, quantization, trl, expected):
    facts = {**LLAMA, "training.peft": "lora", "model.quantization": quantization, "training.mixed_precision": "bf16"}
    packages = {"trl": Package("trl", trl, Source("lock"))} if trl else {}
    environment = Environment("lock", packages, complete=True)
    precision = read_run(with_traits({**facts, "training.framework": framework}, packages), environment).run.precision
    assert (precision.unquantised, precision.residual) == (expected, expected)


def test_a_role_that_only_scores_has_no_optimizer():
    reading = read_run(LLAMA, role="reference", trains=False)
    assert reading.run.optimizer is None
    assert "training.optimizer" not in assumed(reading)
    assert reading.run.role == "reference"


def test_versions_keep_their_numbers_only():
    run = read_run(LLAMA, with_packages(torch="2.4.0+cu121", transformers="4.46.0rc1")).run
    assert run.release("torch") == (2, 4, 0)
    assert run.release("transformers") == (4, 46, 0)
    assert run.release("trl") is None


def test_routed_experts_are_counted_where_nobody_says_how_many_parameters_there_are():
    names = ("model.parameters", "model.parameters_in_blocks", "model.expert_parameters", "model.num_experts")
    facts = {name: value for name, value in LLAMA.items() if name not in names}
    sizes = {"model.num_experts": 8, "model.num_experts_per_token": 2, "model.moe_intermediate_size": 1000}
    dense, moe, plain = (read_run({**facts, **more}) for more in ({}, sizes, {"model.gated_mlp": False}))
    assert dense.run is not None
    assert moe.run is not None
    assert plain.run is not None
    one = dense.run.model
    assert moe.run.model.expert == 8 * one.layers * 3 * one.hidden * 1000
    assert assumed(moe)["model.expert_parameters"] == moe.run.model.expert
    assert one.in_blocks - plain.run.model.in_blocks == one.layers * one.hidden * one.intermediate


def test_blocks_without_experts_are_counted_where_it_is_said_how_many_parameters_experts_have():
    names = ("model.parameters", "model.parameters_in_blocks", "model.expert_parameters")
    facts = {name: value for name, value in LLAMA.items() if name not in names} | {"model.num_experts": 8}
    facts |= {"model.num_experts_per_token": 2, "model.moe_intermediate_size": 1000}
    whole = read_run(facts).run
    assert whole is not None
    one, each = whole.model, 3 * whole.model.hidden
    some = read_run({**facts, "model.expert_parameters": (one.layers - 3) * 8 * each * 1000}).run
    assert some is not None
    assert one.in_blocks - some.model.in_blocks == 3 * (8 * each * 1000 + 8 * one.hidden - each * one.intermediate)


def test_only_some_programs_split_norms_along_the_sequence():
    split = {**LLAMA, "training.tensor_parallel": 2, "hardware.world_size": 2}
    for more, found in (
        ({}, False),
        ({"training.sharding": "megatron"}, True),
        ({"training.sharding": "megatron", "training.sequence_parallel": False}, False),
    ):
        run = read_run({**split, **more}).run
        assert run is not None
        assert run.sequence_parallel is found


def test_adapters_of_rank_zero_are_refused():
    with pytest.raises(UsageError, match=r"training\.lora_rank cannot be 0"):
        read_run({**LLAMA, "training.peft": "lora", "training.lora_rank": 0})
    assert read_run({**LLAMA, "training.peft": None, "training.lora_rank": 0}).run is not None


def test_attention_is_assumed_as_the_program_does_it():
    own, usual = (read_run(with_traits({**LLAMA, "training.framework": name})) for name in ("openrlhf", "trl"))
    assert assumed(own)["model.attn_implementation"] == "flash_attention_2"
    assert assumed(usual)["model.attn_implementation"] == "sdpa"


def test_trl_is_taken_to_load_in_float32_where_nobody_says_a_dtype():
    facts = {name: value for name, value in LLAMA.items() if name != "training.param_dtype"}
    adapted = {**facts, "training.framework": "trl", "training.peft": "lora", "training.mixed_precision": "bf16"}
    assert assumed(read_run(with_traits(adapted)))["training.param_dtype"] == "float32"
    assert (
        assumed(read_run(with_traits({**adapted, "model.quantization": "nf4"})))["training.param_dtype"] == "bfloat16"
    )
    assert (
        assumed(read_run(with_traits({**adapted, "training.framework": "hf_trainer"})))["training.param_dtype"]
        == "bfloat16"
    )


@pytest.mark.parametrize(
    ("trainer", "release", "each"),
    [
        ("sft", "0.24.0", 4),
        ("sft", "0.25.0", 2),
        ("dpo", "0.28.0", 4),
        ("dpo", "0.29.0", 2),
        ("kto", "1.3.0", 4),
        ("orpo", "1.9.0", 4),
    ],
)
def test_trainers_of_trl_stopped_one_by_one_to_cast_what_is_not_quantised(trainer, release, each):
    facts = {
        **LLAMA, "model.quantization": "int8", "training.peft": "lora", "training.framework": "trl",
        "training.trainer": trainer, "training.mixed_precision": "fp16",
    }  # fmt: skip
    environment = with_packages(trl=release)
    run = read_run(with_traits(facts, environment.packages), environment).run
    assert run is not None
    assert run.precision.unquantised == each


def test_how_much_a_partly_frozen_model_trains_is_not_guessed() -> None:
    frozen = {**LLAMA, "training.peft": "freeze"}
    assert read_run(frozen).needs == ("model.trainable_parameters",)
    found = read_run({**frozen, "model.trainable_parameters": 10**9}).run
    assert found is not None
    assert (found.trainable, found.adapters) == (10**9, 0)


QLORA = {
    "model.model_type": "llama", "model.hidden_size": 2048, "model.intermediate_size": 5632, "model.num_hidden_layers": 22,
    "model.num_attention_heads": 32, "model.num_key_value_heads": 4, "model.vocab_size": 32000, "model.parameters": 1100048384,
    "model.quantization": "nf4", "model.load_dtype": "float16", "training.peft": "lora", "training.compute_dtype": "float16",
    "training.micro_batch_size": 2, "training.sequence_length": 1024,
}  # fmt: skip


@pytest.mark.parametrize(("mixed", "compute"), [("no", 4), ("fp16", 2)])
def test_a_prepared_4bit_model_computes_in_float32_unless_autocast_casts(mixed, compute):
    precision = read_run({**QLORA, "training.mixed_precision": mixed}).run.precision
    assert (precision.unquantised, precision.residual, precision.compute, precision.quantised) == (4, 4, compute, 2)


def test_a_program_nobody_read_is_not_taken_to_prepare_its_4bit_model():
    facts = {**QLORA, "training.mixed_precision": "no", "training.framework": "lightning"}
    assert read_run(facts).run.precision.unquantised == 2


QWEN_VL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "tie_word_embeddings": False,
    "vision_config": {"hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "out_hidden_size": 3584},
}  # fmt: skip
LLAMA_VISION = {
    "architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama",
    "text_config": {"model_type": "mllama_text_model", "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256},
    "vision_config": {"model_type": "mllama_vision_model", "image_size": 560},
}  # fmt: skip
KINDS = ("all-attention", "all-mlp")
TOWERS_KINDS = ("vision:all-attention", "vision:all-mlp")


@pytest.mark.parametrize(
    ("config", "targets", "trained"),
    [  # peft 0.21.2 on the models of transformers 5.24 on the meta device, with what unsloth_zoo 2026.10.9 get_peft_regex() says
        (QWEN_VL, KINDS + TOWERS_KINDS, 51_521_536),
        (QWEN_VL, KINDS, 40_370_176),
        (QWEN_VL, TOWERS_KINDS, 11_151_360),
        (QWEN_VL, (KINDS[0], TOWERS_KINDS[0]), 14_024_704),
        (LLAMA_VISION, KINDS + TOWERS_KINDS, 67_174_400),
        (LLAMA_VISION, KINDS, 52_428_800),
        (LLAMA_VISION, TOWERS_KINDS, 14_745_600),
        (LLAMA_VISION, (KINDS[0], TOWERS_KINDS[0]), 23_592_960),
    ],
)
def test_adapters_of_a_tower_are_trained_as_peft_makes_them(config, targets, trained):
    document = make_model_document(config, "config.json", count_parameters(config))
    facts = {one.fact: one.value for one in document.statements}
    facts |= {"training.peft": "lora", "training.lora_rank": 16, "training.lora_target_modules": targets}
    reading = read_run(
        {**facts, "training.sequence_length": 2048, "training.micro_batch_size": 1, "hardware.world_size": 1}
    )
    assert reading.run.trainable == trained


def test_adapters_of_a_tower_that_nobody_listed_are_asked_for():
    facts = {
        **LLAMA,
        "model.vision_parameters": 1,
        "training.peft": "lora",
        "training.lora_target_modules": TOWERS_KINDS,
    }
    assert read_run(facts).needs == ("model.trainable_parameters",)


def test_a_tower_told_otherwise_than_by_its_layers_is_refused():
    facts = {**LLAMA, "model.tower_linears": ("attn",)}
    with pytest.raises(UsageError, match="tower_linears"):
        read_run(facts)


@pytest.mark.parametrize(
    ("stated", "loss", "said"),
    [
        ({}, "cross_entropy", True),
        ({"training.trainer": "sft"}, "cross_entropy", True),
        ({"training.loss_implementation": "chunked"}, "chunked", False),
        ({"training.use_liger_kernel": True}, "fused_linear", False),
        ({"training.trainer": "grpo"}, "cross_entropy", False),
        ({"program.makes_logits": False}, "cross_entropy", False),
    ],
)
def test_whole_logits_of_a_loss_that_nobody_names_are_said(stated, loss, said):
    reading = read_run({**LLAMA, **stated})
    assert reading.run.loss == loss
    found = {one.fact: one for one in reading.assumptions}.get("training.loss_implementation")
    assert (found is not None and found.is_most) is said
    assert "training.loss_implementation" not in assumed(read_run({**LLAMA, **stated}, trains=False))


@pytest.mark.parametrize("name", ["allocator.expandable_segments", "program.trains_with_expandable_segments"])
def test_segments_expand_where_the_environment_or_the_program_asks_for_it(name):
    assert [read_run({**LLAMA, name: on}).run.expandable for on in (True, False)] == [True, False]


def test_keys_of_preferences_without_a_trainer_are_said_to_be_taken_for_plain_training():
    preferences = {**LLAMA, "training.max_prompt_length": 1800}
    assert assumed(read_run(preferences))["training.trainer"] == "causal_lm"
    assert "training.trainer" not in assumed(read_run({**preferences, "training.trainer": "dpo"}))
