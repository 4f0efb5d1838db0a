"""What is traced of a run, what is assumed, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.facts import Fact
from compatcheck.lab.traced.request import OwnSource, StepRequest, Untraceable, make_request
from compatcheck.rules.vocabulary import vocabulary
from tests.unit.memory.traits import with_traits

CONFIG = {"model_type": "llama", "torch_dtype": "bfloat16"}
SIZES = {"training.micro_batch_size": 2, "training.sequence_length": 128}


def request(**facts: Any) -> StepRequest:
    stated = {name.replace("__", "."): value for name, value in facts.items()}
    found = make_request(with_traits({**SIZES, **stated}), CONFIG)
    assert isinstance(found, StepRequest)
    return found


def assumed(found: StepRequest) -> dict[str, object]:
    return {assumption.fact: assumption.value for assumption in found.assumptions}


def test_what_nobody_stated_is_an_assumption() -> None:
    assert assumed(request()) == {
        "training.param_dtype": "bfloat16",
        "run.attention_mask": "ones",
        "training.gradient_accumulation_steps": 1,
        "training.gradient_checkpointing": False,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "foreach",
        "hardware.compute_capability": 8.0,
    }


def test_batches_after_the_longest_are_shorter_where_it_comes_first() -> None:
    assert request().program["shorter"] is None
    assert request(run__longest_first=True, run__attention_mask="none").program["shorter"] == 80
    masked = request(run__longest_first=True, run__attention_mask="ones")
    assert (masked.program["shorter"], assumed(masked)["run.longest_first"]) == (None, False)


def test_a_fact_without_a_value_is_assumed() -> None:
    found = request(hardware__compute_capability=Fact("hardware.compute_capability", None, "detected"))
    assert found.program["device"]["capability"] == [8, 0]


def test_what_is_stated_is_not_assumed() -> None:
    stated = {
        "training.param_dtype": Fact("training.param_dtype", "float32", "set"),
        "run.attention_mask": "none",
        "training.gradient_accumulation_steps": 4,
        "training.gradient_checkpointing": True,
        "training.optimizer": "sgd",
        "training.optimizer_implementation": "for_loop",
        "hardware.compute_capability": 9.0,
    }
    found = make_request({**SIZES, **stated}, CONFIG)
    assert isinstance(found, StepRequest)
    assert found.assumptions == ()
    program = found.program
    assert (program["dtype"], program["mask"], program["optimizer"]) == ("float32", "none", "sgd")
    assert program["micro_batches"] == 2, "gradients of the first are live in the second"
    assert program["device"]["capability"] == [9, 0]


def test_names_are_those_of_the_vocabulary() -> None:
    names = set(
        assumed(request(training__mixed_precision="bf16", training__framework="hf_trainer", training__peft="lora"))
    )
    assert names <= set(vocabulary())


@pytest.mark.parametrize(
    ("version", "number"), [("9.15.1.9", 91501), ("9.8.0", 90800), ("9.1", 90100), ("unknown", None)]
)
def test_cudnn_is_counted_as_it_counts_itself(version: str, number: int | None) -> None:
    assert request(runtime__cudnn=version).program["device"]["cudnn"] == number


@pytest.mark.parametrize(("value", "capability"), [(7.5, [7, 5]), (8.9, [8, 9]), (10.0, [10, 0]), (12.1, [12, 1])])
def test_capabilities_have_two_parts(value: float, capability: list[int]) -> None:
    assert request(hardware__compute_capability=value).program["device"]["capability"] == capability


def test_mixed_precision_keeps_weights_in_float32_and_accelerate_widens_outputs() -> None:
    program = request(training__mixed_precision="bf16", training__framework="hf_trainer").program
    assert (program["dtype"], program["autocast"], program["outputs_to_float32"]) == ("float32", "bfloat16", True)
    assert not request(training__mixed_precision="bf16", training__framework="custom").program["outputs_to_float32"]
    kept = request(training__mixed_precision="bf16", training__keep_fp32_outputs=False, training__framework="trl")
    assert not kept.program["outputs_to_float32"]


@pytest.mark.parametrize(
    ("framework", "stated", "taken"),
    [
        ("hf_trainer", None, "hf_trainer"),
        ("hf_trainer", True, True),
        ("trl", None, "hf_trainer"),  # its releases and trainers differ
        ("custom", None, None),
        (None, None, "hf_trainer"),
    ],
)
def test_whether_there_is_a_cache_is_the_trainers_choice(framework: str | None, stated: Any, taken: Any) -> None:
    facts = {"training.framework": framework, "model.use_cache": stated}
    stated_facts = {name: value for name, value in facts.items() if value is not None}
    found = make_request(with_traits({**SIZES, **stated_facts}), CONFIG)
    assert isinstance(found, StepRequest)
    assert found.program["use_cache"] == taken


def test_several_ranks_without_sharding_have_buckets() -> None:
    assert request(hardware__world_size=8).buckets
    assert not request(hardware__world_size=8, training__gradient_as_bucket_view=True).buckets
    assert not request(hardware__world_size=1).buckets


def test_the_second_generation_of_fsdp_is_sharded() -> None:
    found = request(
        training__sharding="fsdp", training__fsdp_version=2, hardware__world_size=16, training__mixed_precision="bf16"
    )
    assert found.program["fsdp"]["world_size"] == 16
    assert found.program["fsdp"]["param_dtype"] == "bfloat16"
    assert found.program["autocast"] is None, "the policy casts"
    assert not found.buckets


def test_adapters_are_described_as_peft_takes_them() -> None:
    found = request(
        training__peft="lora", training__lora_rank=16, training__lora_target_modules=("v_proj", "q_proj")
    ).program["lora"]
    assert found == {"r": 16, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}
    everything = request(training__peft="dora", training__lora_target_modules=("all-linear",)).program["lora"]
    assert (everything["target_modules"], everything["use_dora"]) == ("all-linear", True)


def test_flash_attention_is_traced_as_the_kernel_that_torch_has_of_it() -> None:
    found = request(model__attn_implementation="flash_attention_2", run__attention_mask="padding")
    assert (found.program["attn_implementation"], found.program["mask"]) == ("sdpa", "none")
    assert assumed(found)["model.attn_implementation"] == "sdpa"


@pytest.mark.parametrize(
    ("fact", "value", "word"),
    [
        ("training.zero_stage", 3, "DeepSpeed"),
        ("training.sharding", "megatron", "sharding"),
        ("training.offload_optimizer", "cpu", "offloading"),
        ("training.tensor_parallel", 2, "data parallel"),
        ("model.quantization", "nf4", "quantised"),
        ("training.peft", "ia3", "LoRA"),
        ("training.use_liger_kernel", True, "Liger"),
        ("training.compile", True, "compile"),
        ("training.param_dtype", "float8_e4m3fn", "float8"),
        ("training.trainer", "grpo", "loss"),
        ("training.master_dtype", "float32", "master"),
        ("model.trust_remote_code", True, "repository"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_a_reason(fact: str, value: Any, word: str) -> None:
    found = make_request({**SIZES, fact: value}, CONFIG)
    assert isinstance(found, Untraceable)
    assert word in found.reason


def test_the_generation_of_fsdp_decides() -> None:
    sharded = {**SIZES, "training.sharding": "fsdp", "hardware.world_size": 8}
    unknown = make_request(sharded, CONFIG)
    assert isinstance(unknown, Untraceable)
    assert unknown.needs == ("training.fsdp_version",)
    first = make_request({**sharded, "training.fsdp_version": 1}, CONFIG)
    assert isinstance(first, StepRequest)
    assert {"version": 1, "strategy": "full_shard", "use_orig_params": True}.items() <= first.program["fsdp"].items()
    hybrid = {"training.fsdp_version": 1, "training.fsdp_sharding_strategy": "hybrid_shard"}
    assert isinstance(make_request({**sharded, **hybrid}, CONFIG), Untraceable)


@pytest.mark.parametrize(
    ("facts", "accelerate", "waits"),
    [
        ({"training.sync_each_batch": False}, None, True),
        ({"training.sync_each_batch": True}, None, False),
        ({}, None, False),
        ({"training.framework": "accelerate"}, (1, 11), True),
        ({"training.framework": "accelerate"}, (1, 10), False),  # its no_sync did nothing for FSDP2
        ({"training.framework": "accelerate", "training.fsdp_version": 1}, (1, 10), True),
    ],
)
def test_gradients_wait_where_the_loop_says_so(facts: Any, accelerate: Any, waits: bool) -> None:  # noqa: FBT001
    sharded = {"training.sharding": "fsdp", "training.fsdp_version": 2, "hardware.world_size": 2}
    stated = {**SIZES, **sharded, "training.gradient_accumulation_steps": 4, **facts}
    versions = {} if accelerate is None else {"accelerate": accelerate}
    found = make_request(with_traits(stated), CONFIG, versions=versions)
    assert isinstance(found, StepRequest)
    assert found.program["fsdp"]["no_sync"] is waits


def test_a_module_of_ones_own_needs_no_configuration_and_brings_its_loss_and_adapters() -> None:
    own = OwnSource("/x/train.py", None, "build", "/x")
    stated = {"training.trainer": "grpo", "training.peft": "ia3", "training.use_liger_kernel": True}
    found = make_request({**stated, "training.micro_batch_size": 2, "training.mixed_precision": "bf16"}, {}, own)
    assert isinstance(found, StepRequest)
    program = found.program
    assert program["module"]["facts"] == {
        "trainer": "grpo",
        "peft": "ia3",
        "use_liger_kernel": True,
        "micro_batch_size": 2,
        "mixed_precision": "bf16",
    }
    assert (program["dtype"], program["autocast"], program["lora"]) == (None, "bfloat16", None)
    assert assumed(found)["run.outputs_kept"] is True
    assert isinstance(make_request({"training.zero_stage": 3}, {}, own), Untraceable)


@pytest.mark.parametrize(("length", "word"), [(0, "is 0"), (-3, "is -3"), (10**18, "16,777,216 tokens")])
def test_impossible_sizes_are_refused(length: int, word: str) -> None:
    found = make_request({**SIZES, "training.sequence_length": length}, CONFIG)
    assert isinstance(found, Untraceable)
    assert word in found.reason


@pytest.mark.parametrize("missing", sorted(SIZES))
def test_sizes_are_never_guessed(missing: str) -> None:
    found = make_request({name: value for name, value in SIZES.items() if name != missing}, CONFIG)
    assert isinstance(found, Untraceable)
    assert found.needs == (missing,)
