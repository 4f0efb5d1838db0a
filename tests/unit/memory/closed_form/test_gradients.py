import pytest

from compatcheck.memory.closed_form.gradients import Gradients, count_trained, gradients, largest_unsharded

SEVEN = 6738415616


def test_gradients_outlive_a_micro_batch_only_when_they_accumulate(make_run):
    assert gradients(make_run()) == Gradients(2 * SEVEN, 0, 0)
    assert gradients(make_run(training__gradient_accumulation_steps=4)) == Gradients(2 * SEVEN, 2 * SEVEN, 0)


@pytest.mark.parametrize(
    ("changes", "packages", "each"),
    [
        ({}, {}, 2),
        ({"training__fsdp_version": 2, "training__reduce_dtype": "float32"}, {"accelerate": "1.11.0"}, 4),
        ({"training__fsdp_version": 2, "training__reduce_dtype": "float32"}, {"accelerate": "1.10.1"}, 0),
        ({"training__sync_each_batch": True}, {}, 0),
        ({"training__sync_each_batch": True}, {"transformers": "4.57.1"}, 2),
        ({"training__framework": "verl"}, {}, 0),
        ({"training__gradient_accumulation_steps": 1}, {}, 0),
    ],
)
def test_fsdp_under_no_sync_keeps_whole_gradients_between_micro_batches(make_run, changes, packages, each):
    facts = {
        "training__sharding": "fsdp", "hardware__world_size": 8, "training__framework": "hf_trainer",
        "training__gradient_accumulation_steps": 4,
    }  # fmt: skip
    found = gradients(make_run(packages, **(facts | changes)))
    assert found.complete == 2 * SEVEN / 8
    steps = changes.get("training__gradient_accumulation_steps", 4)
    assert found.before == (each * SEVEN or (found.complete if steps > 1 else 0))


def test_zero_three_holds_its_share_from_the_start(make_run):
    share = 2 * SEVEN / 8
    assert gradients(make_run(training__zero_stage=3, hardware__world_size=8)) == Gradients(share, share, share)


def test_zero_one_does_not_split_gradients(make_run):
    assert gradients(make_run(training__zero_stage=1, hardware__world_size=8)).complete == 2 * SEVEN


def test_offload_moves_shares_to_the_host(make_run):
    for stage in (2, 3):
        run = make_run(training__zero_stage=stage, hardware__world_size=8, training__offload_optimizer="cpu")
        assert gradients(run).complete == 0


def test_an_optimizer_in_backward_holds_one_gradient_at_a_time(make_run):
    assert gradients(make_run(training__optimizer_in_backward=True)).complete == 2 * 32 * 202383360 / 32


def test_adapters_have_gradients_of_their_own_dtype(make_run):
    run = make_run({"peft": "0.12.0"}, training__peft="lora", model__load_dtype="bfloat16")
    assert count_trained(run) == 32 * 8 * 4 * 4096
    assert gradients(run).complete == 4 * count_trained(run)


def test_fsdp_reduces_a_block_or_the_head_at_once(make_run):
    run = make_run(training__sharding="fsdp", hardware__world_size=8, training__reduce_dtype="float32")
    assert largest_unsharded(run).expected == pytest.approx(4 * 202383360)
    assert largest_unsharded(make_run()).high == 0


@pytest.mark.parametrize(("release", "kept"), [("1.13.1", True), ("2.0.1", False)])
def test_before_torch_2_gradients_are_zeroed_and_stay_and_parameters_step_one_by_one(make_run, release, kept):
    run = make_run(packages={"torch": release})
    assert bool(gradients(run).before) is kept
    assert (run.implementation == "for_loop") is kept


@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_that_are_made_apart_are_there_beside_the_buffer_until_a_micro_batch_is_through(make_run, ranks):
    found = gradients(
        make_run(
            training__sharding="megatron", training__grad_accum_dtype="float32", program__makes_gradients_apart=True,
            hardware__world_size=ranks,
        )
    )  # fmt: skip
    left = 4 * SEVEN + (2 * SEVEN if ranks > 1 else 0)  # torch's DDP keeps its buckets
    assert found == Gradients(left + 2 * SEVEN, left, left, left)


def test_without_a_buffer_there_is_nothing_that_they_could_be_beside(make_run):
    run = make_run(
        training__sharding="megatron", program__makes_gradients_apart=True, hardware__world_size=1,
        training__master_dtype=None, training__grad_accum_dtype="bfloat16",
    )  # fmt: skip
    assert gradients(run).complete == 2 * SEVEN
