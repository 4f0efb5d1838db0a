"""Deriving only adds, and adds the same whatever the order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.resolution.derive import (
    DERIVATIONS,
    derive,
    derive_from_code,
    derive_fused_loss,
    derive_own_weights,
    derive_unsharded,
)
from compatcheck.rules.values import allowed_values, parse_value
from compatcheck.rules.vocabulary import vocabulary


def values_of(name: str) -> st.SearchStrategy[Any]:
    term = vocabulary()[name]
    plain: st.SearchStrategy[Any]
    if allowed := allowed_values(term):
        plain = st.sampled_from([int(value) if term.type == "int" else value for value in allowed])
    else:
        plain = {
            "bool": st.booleans(),
            "int": st.integers(1, 64),
            "float": st.floats(0, 1),
            "dtype": st.sampled_from(["bfloat16", "float16", "float32"]),
            "str": st.sampled_from(["chunked_nll", "nll"]),
            "set": st.sampled_from([("all-linear",), ("q_proj", "v_proj")]),
        }[term.type]
    return st.one_of(st.none(), plain) if term.nullable else plain


NAMES = sorted({name for entry in DERIVATIONS for name in (entry.fact, *entry.inputs)})
stated = st.fixed_dictionaries({}, optional={name: values_of(name) for name in NAMES})


def facts_from(values: dict[str, Any]) -> dict[str, Fact]:
    return {name: Fact(name, value, "configuration", (Source("f.yaml", name),)) for name, value in values.items()}


def derived(**values: Any) -> dict[str, Any]:
    facts = facts_from({name.replace("__", "."): value for name, value in values.items()})
    derive(facts)
    return {name: fact.value for name, fact in facts.items()}


@settings(max_examples=300)
@given(stated, st.randoms(use_true_random=False))
def test_stated_values_stay_and_order_does_not_matter(values: dict[str, Any], random: Any) -> None:
    facts = facts_from(values)
    before = dict(facts)
    derive(facts)
    assert {name: facts[name] for name in before} == before
    again = dict(facts)
    derive(again)
    assert again == facts
    names = list(values)
    random.shuffle(names)
    other = facts_from({name: values[name] for name in names})
    derive(other)
    assert other == facts


@settings(max_examples=200)
@given(stated)
def test_what_is_derived_says_from_what_and_is_a_value_of_the_vocabulary(values: dict[str, Any]) -> None:
    facts = facts_from(values)
    derive(facts)
    for name in facts.keys() - values.keys():
        fact = facts[name]
        assert fact.origin == "derived"
        assert fact.note
        assert fact.sources
        assert parse_value(name, fact.value, Source("test")) == fact.value


@settings(max_examples=200)
@given(stated)
def test_what_is_derived_reads_back_as_a_stated_value(values: dict[str, Any]) -> None:
    facts = facts_from(values)
    derive(facts)
    again = facts_from({name: fact.value for name, fact in facts.items()})
    derive(again)
    assert {name: fact.value for name, fact in again.items()} == {name: fact.value for name, fact in facts.items()}


def test_arithmetic() -> None:
    found = derived(
        hardware__gpus_per_node=8,
        hardware__nodes=2,
        training__micro_batch_size=3,
        training__gradient_accumulation_steps=4,
        training__max_prompt_length=100,
        training__max_response_length=28,
    )
    assert found["hardware.world_size"] == 16
    assert found["training.global_batch_size"] == 192
    assert found["training.sequence_length"] == 128


@pytest.mark.parametrize("name", ["tensor_parallel", "pipeline_parallel", "context_parallel"])
def test_ranks_that_share_sequences_are_not_multiplied_into_the_batch(name: str) -> None:
    given_facts = {
        "training__micro_batch_size": 1,
        "training__gradient_accumulation_steps": 1,
        "hardware__world_size": 8,
    }
    assert "training.global_batch_size" not in derived(**given_facts, **{f"training__{name}": 4})
    assert derived(**given_facts, **{f"training__{name}": 1})["training.global_batch_size"] == 8


@pytest.mark.parametrize(
    ("more", "steps"),
    [
        ({}, 4),
        ({"training__tensor_parallel": 2, "training__pipeline_parallel": 2}, 16),
        ({"training__gradient_accumulation_steps": 3}, 3),
        ({"training__micro_batch_is_global": True}, None),
        ({"training__micro_batch_size": 16}, None),
    ],
)
def test_a_batch_is_gone_through_in_micro_batches(more: dict[str, Any], steps: int | None) -> None:
    run: dict[str, Any] = {
        "training__global_batch_size": 64,
        "training__micro_batch_size": 2,
        "hardware__world_size": 8,
    }
    assert derived(**(run | more)).get("training.gradient_accumulation_steps") == steps


@pytest.mark.parametrize(("more", "steps"), [({}, 4), ({"rollout__n": 8}, None)])
def test_answers_that_are_strung_together_do_not_tell_how_many_micro_batches_a_step_has(more, steps):
    run = {
        "training__global_batch_size": 64,
        "training__micro_batch_size": 2,
        "hardware__world_size": 8,
        "training__packing": True,
    }
    assert derived(**(run | more)).get("training.gradient_accumulation_steps") == steps


def test_sharding_and_dtypes() -> None:
    found = derived(training__zero_stage=3, training__mixed_precision="bf16")
    assert found["training.sharding"] == "zero"
    assert found["training.param_dtype"] == found["training.compute_dtype"] == "bfloat16"
    assert found["training.fsdp_version"] is None
    assert "training.param_dtype" not in derived(training__sharding="ddp", training__mixed_precision="bf16")
    assert "training.sharding" not in derived(training__zero_stage=0)
    assert derived(training__fsdp_version=2)["training.sharding"] == "fsdp"
    assert "training.sharding" not in derived(training__fsdp_version=None)


@pytest.mark.parametrize(
    ("more", "dtype"),
    [
        ({}, "bfloat16"),
        ({"training__sharding": "zero"}, "float32"),  # of the parameters that DeepSpeed casts
        ({"training__mixed_precision": "bf16"}, "bfloat16"),
        ({"model__quantization": "nf4"}, None),
    ],
)
def test_without_mixed_precision_a_run_computes_in_the_dtype_of_its_weights(
    more: dict[str, str], dtype: str | None
) -> None:
    run = {"training__mixed_precision": "no", "training__sharding": "ddp", "model__load_dtype": "bfloat16"}
    found = derived(**{**run, "model__quantization": None, **more})
    assert found.get("training.compute_dtype") == dtype


def test_full_fine_tuning_trains_every_parameter_and_an_adapter_says_nothing() -> None:
    assert derived(model__parameters=7, training__peft=None)["model.trainable_parameters"] == 7
    assert "model.trainable_parameters" not in derived(model__parameters=7, training__peft="lora")
    assert "model.trainable_parameters" not in derived(model__parameters=7)


def test_a_share_that_is_trained_is_not_everything() -> None:
    found = derived(model__parameters=8, training__peft=None, training__trained_share=0.5)
    assert found["model.trainable_parameters"] == 4


def test_the_loss() -> None:
    found = derived(training__use_liger_kernel=False, training__trainer="causal_lm")
    assert found["training.loss_implementation"] == "cross_entropy"
    assert "training.loss_implementation" not in derived(training__use_liger_kernel=False, training__trainer="grpo")


@pytest.mark.parametrize(
    ("code", "loss"),
    [
        ({}, "fused_linear"),
        ({"passes_labels": True}, "fused_linear"),
        ({"passes_labels": False}, "cross_entropy"),
        ({"passes_labels": False, "runs_trl_trainers": True}, "fused_linear"),
        ({"passes_labels": False, "runs_trl_trainers": True, "has_liger_loss": False}, "cross_entropy"),
        ({"runs_trl_trainers": True, "has_liger_loss": False}, "cross_entropy"),
    ],
)
def test_liger_replaces_the_loss_of_a_model_that_is_given_labels(code: dict[str, bool], loss: str) -> None:
    facts = facts_from({"training.use_liger_kernel": True, **{f"program.{name}": code[name] for name in code}})
    derive_fused_loss(facts)
    assert facts["training.loss_implementation"].value == loss


@pytest.mark.parametrize(("labels", "loss"), [(True, "cross_entropy"), (False, "fused_linear")])
def test_liger_leaves_a_model_alone_that_it_does_not_know(labels: bool, loss: str) -> None:  # noqa: FBT001 (a parameter)
    told = {"program.passes_labels": labels, "program.runs_trl_trainers": True, "model.has_liger_kernels": False}
    facts = facts_from({"training.use_liger_kernel": True, **told})
    derive_fused_loss(facts)
    assert facts["training.loss_implementation"].value == loss


ADAPTED = {
    "training__peft": "lora",
    "training__lora_rank": 8,
    "training__lora_target_modules": ("q_proj", "v_proj"),
    "model__hidden_size": 4096,
    "model__intermediate_size": 11008,
    "model__num_attention_heads": 32,
    "model__num_key_value_heads": 32,
    "model__head_dim": 128,
    "model__num_hidden_layers": 32,
}


def test_what_adapters_train_follows_from_rank_and_targets() -> None:
    assert derived(**ADAPTED)["model.trainable_parameters"] == 4_194_304
    assert "model.trainable_parameters" not in derived(**(ADAPTED | {"training__lora_modules_to_save": ("lm_head",)}))
    assert "model.trainable_parameters" not in derived(**(ADAPTED | {"model__num_experts": 8}))
    assert "model.trainable_parameters" not in derived(**(ADAPTED | {"training__peft": "ia3"}))
    assert "model.trainable_parameters" not in derived(**(ADAPTED | {"model__attention_layers": 8}))


def test_adapters_are_counted_as_the_type_calls_its_linear_layers() -> None:
    every = ADAPTED | {"training__lora_target_modules": ("all-linear",)}
    assert derived(**every)["model.trainable_parameters"] == 19_988_480
    fused = every | {"model__model_type": "baichuan"}
    assert derived(**fused)["model.trainable_parameters"] == 19_988_480 - 32 * 8 * 2 * 4096
    assert "model.trainable_parameters" not in derived(**(every | {"model__model_type": "deepseek_v2"}))
    own = fused | {"program__runs_transformers": False}
    assert derived(**own)["model.trainable_parameters"] == 19_988_480
    head = ADAPTED | {"training__lora_target_modules": ("q_proj", "v_proj", "lm_head")}
    assert "model.trainable_parameters" not in derived(**head)
    assert derived(**(head | {"model__vocab_size": 32000}))["model.trainable_parameters"] == 4_194_304 + 8 * 36096


def frozen_inputs(**values: Any) -> Any:
    facts = facts_from({name.replace("__", "."): value for name, value in (ADAPTED | values).items()})
    derive_from_code(facts)
    found = facts.get("training.frozen_inputs")
    return found and found.value


def test_what_no_adapter_takes_is_measured_under_zero3() -> None:
    zero3 = {"training__zero_stage": 3}
    assert frozen_inputs() is None
    assert frozen_inputs(**zero3) == 4096 + 11008
    assert frozen_inputs(**zero3, training__lora_dropout=0.1) == 2 * 4096 + 11008
    assert frozen_inputs(**zero3, training__lora_target_modules=("all-linear",)) == 0
    assert frozen_inputs(**zero3, training__peft="prompt_tuning") == 2 * 4096 + 11008
    assert frozen_inputs(**zero3, training__lora_modules_to_save=("lm_head",)) == 4096 + 11008
    for name, value in {
        "training__peft": "freeze",
        "model__num_experts": 8,
        "model__attention_layers": 8,
        "model__model_type": "deepseek_v2",
        "training__framework": "trl",
    }.items():
        assert frozen_inputs(**zero3, **{name: value}) is None


def test_targets_that_nobody_knows_leave_open_what_no_adapter_takes() -> None:
    values = {name.replace("__", "."): value for name, value in ADAPTED.items()} | {"training.zero_stage": 3}
    del values["training.lora_target_modules"]
    facts = facts_from(values)
    derive_from_code(facts)
    assert "training.frozen_inputs" not in facts


def test_a_spread_state_has_several_ranks() -> None:
    assert derived(training__zero_stage=3)["hardware.single_rank"] is False
    assert derived(hardware__world_size=1, training__zero_stage=3)["hardware.single_rank"] is True
    assert "hardware.single_rank" not in derived(training__sharding="none")


@pytest.mark.parametrize(("build", "known"), [("rocm", True), ("cpu", True), ("cuda", False)])
def test_only_a_cuda_build_has_a_compute_capability(build: str, *, known: bool) -> None:
    facts = {"runtime.torch_build": Fact("runtime.torch_build", build, "installed", ())}
    derive(facts)
    assert ("hardware.compute_capability" in facts) is known
    assert not known or facts["hardware.compute_capability"].value is None


def test_one_rank_is_not_sharded_unless_something_names_a_sharding() -> None:
    def sharding(*opened: str, world: int = 1, replicates: bool = False, **values: object) -> object:
        facts = {name: Fact(name, value, "configuration", ()) for name, value in values.items()}  # type: ignore[arg-type]
        facts["hardware.world_size"] = Fact("hardware.world_size", world, "declared", ())
        derive(facts)
        added = derive_unsharded(facts, frozenset(opened), replicates=replicates)
        assert not (added and "training.sharding" not in facts)
        return facts["training.sharding"].value if "training.sharding" in facts else None

    assert sharding() == "none"
    assert sharding(world=2) is None
    assert sharding("training.zero_stage") is None
    assert sharding(replicates=True) == "none"
    assert sharding(world=2, replicates=True) == "ddp"
    assert sharding("training.zero_stage", world=2, replicates=True) is None
    assert sharding(world=2, replicates=True, **{"training.zero_stage": 3}) == "zero"
    assert sharding(**{"training.zero_stage": 3}) == "zero"


def test_what_is_trained_beside_frozen_parts_is_counted() -> None:
    assert trained({"model.parameters": 1000, "training.trained_share": 0.25}) == 250
    assert trained({"model.parameters": 1000}) is None


def trained(values: dict[str, object]) -> object:
    facts = {name: Fact(name, value, "set") for name, value in {"training.peft": "freeze", **values}.items()}  # type: ignore[arg-type]  # of the vocabulary
    derive(facts)
    found = facts.get("model.trainable_parameters")
    return None if found is None else found.value


@pytest.mark.parametrize(("world", "placed", "devices"), [(1, "auto", 4), (1, "cuda:0", None), (4, "auto", None)])
def test_one_process_spreads_its_model_over_the_devices_of_its_node(
    world: int, placed: str, devices: int | None
) -> None:
    names = ("model.device_map", "hardware.world_size", "hardware.gpus_per_node")
    facts = {name: Fact(name, value, "set") for name, value in zip(names, (placed, world, 4), strict=True)}
    derive(facts)
    found = facts.get("hardware.devices_per_rank")
    assert (None if found is None else found.value) == devices


@pytest.mark.parametrize(("world", "nodes", "gpus"), [(16, 2, 8), (8, 1, 8), (9, 2, None), (1, 1, None)])
def test_ranks_are_shared_out_among_nodes(world: int, nodes: int, gpus: int | None) -> None:
    facts = {
        f"hardware.{name}": Fact(f"hardware.{name}", value, "set")
        for name, value in (("world_size", world), ("nodes", nodes))
    }
    derive(facts)
    found = facts.get("hardware.gpus_per_node")
    assert (None if found is None else found.value) == gpus


def test_a_loss_that_a_patch_decides_is_not_derived() -> None:
    stated = {"training.use_liger_kernel": False, "training.trainer": "causal_lm", "training.framework": "axolotl"}
    loss = "training.loss_implementation"
    for undecided, derived in (((), True), ((loss,), False)):
        facts = {name: Fact(name, value, "set") for name, value in stated.items()}
        derive(facts, undecided)
        assert (loss in facts) is derived


def test_what_a_key_opens_does_not_follow_and_what_rows_leave_undecided_may() -> None:
    stated = {"training.global_batch_size": 16, "training.micro_batch_size": 2, "hardware.world_size": 4}
    steps = "training.gradient_accumulation_steps"
    for undecided, opened, derived in (((), (), True), ((steps,), (), True), ((), (steps,), False)):
        facts = {name: Fact(name, value, "set") for name, value in stated.items()}
        derive(facts, undecided, opened)
        assert (steps in facts) is derived


def test_a_model_of_the_programs_own_is_not_quantised_as_the_file_of_its_weights() -> None:
    place = (Source("config.json"),)

    def own(runs: bool, kind: Fact) -> object:  # noqa: FBT001 (a fact)
        known = (
            kind,
            Fact("model.stored_quantization", "mxfp4", "model", place),
            Fact("program.runs_transformers", runs, "program", ()),
        )
        facts = {one.name: one for one in known}
        derive_own_weights(facts)
        return facts["model.quantization"].value

    of_file = Fact("model.quantization", "mxfp4", "model", place)
    assert (own(False, of_file), own(True, of_file)) == (None, "mxfp4")
    assert own(False, Fact("model.quantization", "nf4", "configuration", (Source("run.yaml"),))) == "nf4"


def with_open(names: set[str], **values: Any) -> dict[str, Any]:
    facts = facts_from({name.replace("__", "."): value for name, value in values.items()})
    derive(facts, names, names)
    derive_unsharded(facts, frozenset(names), names, replicates=True)
    derive_from_code(facts, names)
    return {name: fact.value for name, fact in facts.items()}


@settings(max_examples=300)
@given(stated, st.sampled_from(NAMES), st.data())
def test_nothing_is_derived_that_another_value_of_what_nobody_knows_would_change(
    values: dict[str, Any], name: str, data: st.DataObject
) -> None:
    """What is derived while a fact is set to something nobody knows is so for every value that it may have."""
    known = {one.replace(".", "__"): value for one, value in values.items() if one != name}
    without = with_open({name}, **known)
    with_value = with_open(set(), **known, **{name.replace(".", "__"): data.draw(values_of(name))})
    if name != "rollout.mode":  # a run that has it generates, whatever it is
        for fact in without.keys() - values.keys():
            assert with_value.get(fact) == without[fact], fact


@pytest.mark.parametrize(
    ("opened", "run", "fact"),
    [
        ("hardware.world_size", {"training__sharding": "zero"}, "hardware.single_rank"),
        ("hardware.gpus_per_node", {"training__sharding": "fsdp"}, "hardware.single_rank"),
        ("training.zero_stage", {"training__fsdp_version": 2}, "training.sharding"),
        ("training.mixed_precision", {"training__param_dtype": "bfloat16"}, "training.compute_dtype"),
        (
            "model.quantization",
            {"training__mixed_precision": "no", "training__sharding": "zero", "training__zero_stage": 2}
            | {"model__load_dtype": "bfloat16"},
            "training.param_dtype",
        ),
        ("model.has_liger_kernels", {"training__use_liger_kernel": True}, "training.loss_implementation"),
    ],
)
def test_a_later_way_does_not_count_while_an_earlier_one_waits(opened: str, run: dict[str, Any], fact: str) -> None:
    assert fact in with_open(set(), **run)
    assert fact not in with_open({opened}, **run)
