import pytest

from compatcheck.memory.closed_form.gradients import gradients
from compatcheck.memory.closed_form.optimizer_states import moment_bytes, optimizer_states, step_workspace
from compatcheck.memory.closed_form.parameters import parameters

SEVEN = 6738415616


@pytest.mark.parametrize(
    ("optimizer", "each"),
    [
        ("adamw", 4), ("lion", 2), ("sgd", 0), ("adafactor", 0), ("adamw_8bit", 2 * (1 + 4 / 256)), ("lion_8bit", 1 + 4 / 256),
        ("paged_adamw", 8), ("paged_lion", 4), ("rmsprop_8bit", 1 + 4 / 256), ("ademamix_8bit", 3 * (1 + 4 / 256)),
        ("ao_adamw_8bit", 2 * (1 + 4 / 256)), ("ao_adamw_fp8", 2 * (1 + 4 / 256)), ("ao_adamw_4bit", 2 * (0.5 + 4 / 256)),
    ],
)  # fmt: skip
def test_moments_per_parameter_by_optimizer(make_run, optimizer, each):
    assert moment_bytes(make_run(training__optimizer=optimizer)) == pytest.approx(each * SEVEN)


def test_zero_one_shards_masters_and_moments(make_run):
    states = optimizer_states(make_run(training__zero_stage=1, hardware__world_size=8))
    assert {part.name: part.size.expected for part in states} == {
        "master weights": pytest.approx(4 * SEVEN / 8),
        "adamw states": pytest.approx(8 * SEVEN / 8),
    }


def test_offloaded_states_take_nothing_on_the_device(make_run):
    assert (
        optimizer_states(make_run(training__zero_stage=2, hardware__world_size=8, training__offload_optimizer="cpu"))
        == ()
    )


def test_paged_states_are_outside_of_torchs_allocator_and_may_leave_the_device(make_run):
    (states,) = optimizer_states(make_run(training__optimizer="paged_adamw_8bit"))
    assert states.kind == "other"
    assert states.size.low == 0


def test_optimizers_of_bitsandbytes_have_no_foreach_step(make_run):
    changes = {"training__optimizer_implementation": "foreach"}
    for name in ("paged_adamw", "adamw_8bit"):
        assert step_workspace(make_run(training__optimizer=name, **changes)) == ()
    assert step_workspace(make_run(training__optimizer="adamw", **changes))


def test_foreach_needs_one_temporary_and_two_before_torch_two_one(make_run):
    assert step_workspace(make_run({"torch": "2.4.0"}))[0].size.expected == 2 * SEVEN
    assert step_workspace(make_run({"torch": "2.0.1"}))[0].size.expected == 2 * 2 * SEVEN
    assert step_workspace(make_run(training__optimizer_implementation="fused")) == ()


def test_zero_three_converts_gradients_of_a_billion_at_a_time(make_run):
    two = {"hardware__world_size": 2}
    assert step_workspace(make_run(training__zero_stage=3, **two))[0].size.expected == 4 * 10**9
    assert step_workspace(make_run(training__zero_stage=2, **two))[0].size.expected == 6 * SEVEN / 2


def peak_of_step(run):
    return sum(part.size.expected for part in step_workspace(run))


def test_an_optimizer_of_torch_has_its_temporaries_under_deepspeed_too(make_run):
    three = {"hardware__world_size": 2, "training__zero_stage": 3, "training__optimizer_implementation": "foreach"}
    assert peak_of_step(make_run(**three)) == (4 + 4) * 10**9
    assert peak_of_step(make_run({"torch": "2.0.1"}, **three)) == (4 + 8) * 10**9
    assert peak_of_step(make_run(**{**three, "training__optimizer_implementation": "for_loop"})) == (4 + 8) * 10**9
    assert peak_of_step(make_run(**three, training__optimizer_by_deepspeed=True)) == 4 * 10**9
    # at stage 2 what was converted is gone by then, and one temporary is no larger
    two = {**three, "training__zero_stage": 2}
    assert peak_of_step(make_run(**two)) == 6 * SEVEN / 2
    assert peak_of_step(make_run({"torch": "2.0.1"}, **two)) == (4 + 8 - 2) * SEVEN / 2


@pytest.mark.parametrize(
    ("packages", "changes", "implementation"),
    [
        ({"transformers": "4.41.2", "torch": "2.3.0"}, {}, "foreach"),
        ({"transformers": "4.57.3", "torch": "2.9.0"}, {}, "fused"),
        ({"transformers": "4.28.1", "torch": "1.13.1"}, {}, "for_loop"),
        ({"transformers": "4.41.2", "torch": "2.3.0"}, {"training__optimizer_by_deepspeed": True}, "fused"),
        ({"transformers": "4.41.2", "torch": "2.3.0"}, {"program__uses_accelerate": False}, "fused"),
    ],
)
def test_what_accelerate_hands_to_deepspeed_is_an_optimizer_of_torch(make_run, packages, changes, implementation):
    given = {"training__zero_stage": 3, "hardware__world_size": 2, "program__uses_accelerate": True, **changes}
    assert make_run(packages, **given).implementation == implementation


def test_adapters_and_modules_beside_them_keep_their_own_dtypes(make_run):
    run = make_run(
        {"peft": "0.5.0"},
        training__peft="lora",
        training__lora_modules_to_save=("embed_tokens",),
        model__load_dtype="bfloat16",
    )
    assert moment_bytes(run) == 2 * (4 * run.adapters + 2 * 32000 * 4096)


@pytest.mark.parametrize(("split", "each"), [(False, 18), (True, 6 + 12 / 8)])
def test_megatron_takes_the_bytes_per_parameter_of_its_own_table(make_run, split, each):
    """docs/source/api-guide/dist_optimizer.md of core_r0.11.0: bf16 parameters, fp32 gradients: 18, or 6 + 12/d."""
    run = make_run(
        training__sharding="megatron",
        training__framework="megatron",
        training__mixed_precision="bf16",
        training__distributed_optimizer=split,
        hardware__world_size=8,
    )
    parts = (*parameters(run), *optimizer_states(run))
    states = sum(part.size.expected for part in parts) + gradients(run).persistent
    assert states == pytest.approx(each * run.model.parameters, rel=1e-6)


def test_what_is_built_on_megatron_splits_states_unless_told_not_to(make_run):
    megatron = {"training__sharding": "megatron", "hardware__world_size": 8}
    assert make_run(training__framework="verl", **megatron).parallel.stage == 1
    assert make_run(training__framework="megatron", **megatron).parallel.stage == 0


def test_what_a_projection_leaves_of_the_states_is_not_known(make_run):
    (states,) = optimizer_states(make_run(training__optimizer="galore"))
    assert (states.size.low, states.size.high) == (0, 4 * SEVEN)
    assert states.size.expected == pytest.approx(0.345 * 4 * SEVEN)


@pytest.mark.parametrize(("optimizer", "steps"), [("adamw", 1), ("galore", 0), ("grokadamw", 0)])
def test_only_optimizers_of_torch_step_all_tensors_at_once(make_run, optimizer, steps):
    run = make_run(training__optimizer=optimizer, training__optimizer_implementation="foreach")
    assert len(step_workspace(run)) == steps


@pytest.mark.parametrize(("mixed", "each"), [("fp16", 8), ("bf16", 6)])
def test_the_float16_optimizer_of_deepspeed_has_its_gradients_twice_in_float32(make_run, mixed, each):
    run = make_run(
        training__sharding="zero", training__zero_stage=0, training__mixed_precision=mixed, hardware__world_size=2,
        training__param_dtype="float16" if mixed == "fp16" else "bfloat16",
    )  # fmt: skip
    (part,) = step_workspace(run)
    assert part.size.expected == each * run.model.parameters
