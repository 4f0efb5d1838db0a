"""The reference model: when there is one, and how much of it a rank holds."""

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.memory.closed_form.estimate import estimate
from compatcheck.memory.closed_form.reference import MAYBE, NONE, SURE, count_references
from tests.unit.memory.traits import with_traits

LLAMA_8B = {
    "model.model_type": "llama",
    "model.hidden_size": 4096,
    "model.intermediate_size": 14336,
    "model.num_hidden_layers": 32,
    "model.num_attention_heads": 32,
    "model.num_key_value_heads": 8,
    "model.vocab_size": 128256,
    "model.parameters": 8030261248,
    "model.tie_word_embeddings": False,
    "training.framework": "trl",
    "training.trainer": "dpo",
    "training.micro_batch_size": 1,
    "training.sequence_length": 1024,
    "training.zero_stage": 2,
    "training.sharding": "zero",
    "training.gradient_checkpointing": True,
    "training.param_dtype": "bfloat16",
    "training.mixed_precision": "bf16",
    "hardware.world_size": 8,
    "hardware.memory_bytes": 48 * GIB,
}
COPY = 2 * 8030261248


def held_of_reference(changes=None, packages=()):
    found = {name: Package(name, version, Source("test")) for name, version in dict(packages).items()}
    result = estimate(with_traits({**LLAMA_8B, **(changes or {})}, found), Environment("test", found, complete=False))
    sizes = [part.size for part in result.phases[2].components if part.name == "reference model's parameters"]
    return sizes[0] if sizes else None, result


def test_preference_training_of_all_parameters_keeps_a_copy_below_stage_three():
    size, result = held_of_reference()
    assert size == (COPY, COPY, COPY)
    assert result.verdict.outcome != "fits"


def test_stage_three_shards_the_copy():
    size, _ = held_of_reference({"training.zero_stage": 3})
    assert size == (COPY // 8,) * 3


@pytest.mark.parametrize(("sharding", "times"), [("ddp", 2), ("zero", 1)])
def test_a_reference_that_is_loaded_in_float32_takes_it_unless_deepspeed_casts_it(sharding, times):
    stage = 2 if sharding == "zero" else None
    changes = {"training.sharding": sharding, "training.zero_stage": stage, "model.load_dtype": "bfloat16"}
    size, _ = held_of_reference({**changes, "training.reference_load_dtype": "float32"})
    assert size.expected == times * COPY


@pytest.mark.parametrize(("release", "expected"), [("0.15.2", COPY), ("0.16.0", COPY // 8)])
def test_fsdp_shards_the_copy_from_the_release_that_gives_it_to_it(release, expected):
    changes = {"training.sharding": "fsdp", "training.zero_stage": None}
    size, _ = held_of_reference(changes, {"trl": release})
    assert size.expected == expected


def test_of_an_unknown_release_under_fsdp_the_copy_may_be_whole():
    size, _ = held_of_reference({"training.sharding": "fsdp", "training.zero_stage": None})
    assert size == (COPY // 8, COPY // 8, COPY)


@pytest.mark.parametrize(
    ("changes", "trl", "count"),
    [
        ({}, None, SURE),
        ({"training.peft": "lora"}, None, NONE),
        ({"training.peft": "freeze"}, None, SURE),
        ({"training.framework": "openrlhf", "training.peft": "lora"}, None, SURE),
        ({"training.framework": "open_instruct"}, None, MAYBE),
        ({"training.loss_type": "simpo"}, None, NONE),
        ({"training.reference_model": False}, None, NONE),
        ({"training.precompute_ref_log_probs": True}, (0, 28), NONE),
        ({"training.precompute_ref_log_probs": True}, (1, 1), SURE),
        ({"training.precompute_ref_log_probs": True}, (1, 2), NONE),
        ({"training.precompute_ref_log_probs": True}, None, MAYBE),
        ({"training.trainer": "sft"}, None, NONE),
        ({"training.trainer": "orpo"}, None, NONE),
        ({"training.trainer": "kto"}, None, SURE),
        ({"training.trainer": "grpo", "training.kl_coefficient": 0.0}, None, NONE),
        ({"training.trainer": "grpo", "training.kl_coefficient": 0.04}, None, SURE),
        ({"training.trainer": "grpo"}, None, MAYBE),
        ({"training.trainer": "ppo"}, None, SURE),
        ({"training.trainer": "grpo", "training.framework": "verl"}, None, NONE),
    ],
)
def test_there_is_a_reference_where_the_trainer_compares_with_one(changes, trl, count):
    assert count_references(with_traits({**LLAMA_8B, **changes}), trl) == count


def test_what_nobody_can_tell_is_never_called_fitting_on_the_lower_figure():
    roomy = {"training.trainer": "grpo", "hardware.memory_bytes": 48 * GIB}
    size, result = held_of_reference(roomy)
    assert size == (0, 0, COPY)
    assert result.verdict.outcome == "marginal"
    without = held_of_reference({**roomy, "training.kl_coefficient": 0.0})[1]
    assert without.verdict.outcome == "fits"


def test_ppo_without_its_other_models_is_never_called_fitting():
    _, result = held_of_reference({"training.trainer": "ppo", "hardware.memory_bytes": 1000 * GIB})
    assert result.verdict.outcome == "marginal"
    assert [left.direction for left in result.unmodelled if left.name == "value and reward models"] == ["more"]


def test_openrlhf_takes_the_logits_of_its_own_actor():
    _, result = held_of_reference({"training.framework": "openrlhf"})
    part = next(part for part in result.phases[2].components + result.phases[1].components if part.kind == "logits")
    assert part.formula.startswith(("10 B × 2,048 tokens", "6 B × 2,048 tokens"))
