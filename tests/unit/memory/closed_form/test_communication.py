import pytest

from compatcheck.memory.closed_form.communication import (
    backward_buffers,
    joined_gradients,
    lasting_buffers,
    step_buffers,
)

SEVEN = 6738415616


def test_ddp_holds_all_gradients_twice_unless_they_are_views(make_run):
    assert lasting_buffers(make_run(hardware__world_size=2))[0].size.expected == 2 * SEVEN
    assert lasting_buffers(make_run(hardware__world_size=2, training__gradient_as_bucket_view=True)) == ()
    assert lasting_buffers(make_run()) == ()


def test_zero_two_makes_two_buckets_with_overlap_and_zero_three_one_for_good(make_run):
    two = {"hardware__world_size": 2, "training__reduce_bucket_size": 1000}
    assert backward_buffers(make_run(training__zero_stage=2, **two))[0].size.expected == 2000
    assert (
        backward_buffers(make_run(training__zero_stage=2, training__overlap_comm=True, **two))[0].size.expected == 4000
    )
    assert lasting_buffers(make_run(training__zero_stage=2, **two)) == ()
    assert lasting_buffers(make_run(training__zero_stage=3, **two))[0].size.expected == 2000


@pytest.mark.parametrize(("release", "made"), [("0.12.6", False), ("0.13.0", True)])
def test_zero_one_makes_buckets_from_the_release_that_heeds_its_settings(make_run, release, made):
    one = {"training__zero_stage": 1, "hardware__world_size": 2, "training__reduce_bucket_size": 1000}
    assert bool(backward_buffers(make_run({"deepspeed": release}, **one))) is made


def test_parameters_are_gathered_in_place_or_through_one_bucket(make_run):
    (bucket,) = step_buffers(
        make_run(training__zero_stage=2, hardware__world_size=2, training__allgather_bucket_size=1000)
    )
    assert bucket.size == (0, 0, 2000)
    assert step_buffers(make_run()) == ()


@pytest.mark.parametrize(
    ("stage", "release", "expected"),
    [(1, "0.19.7", 2000), (1, "0.19.8", 4000), (2, "0.19.8", 2000)],
)
def test_buckets_are_in_the_dtype_of_the_weights_but_for_zero_one_of_late(make_run, stage, release, expected):
    settings = {"training__reduce_bucket_size": 1000, "training__grad_accum_dtype": "float32"}
    made = make_run({"deepspeed": release}, training__zero_stage=stage, hardware__world_size=2, **settings)
    assert backward_buffers(made)[0].size.expected == expected


FSDP1 = {"training__sharding": "fsdp", "training__fsdp_version": 1, "hardware__world_size": 8}
BLOCK, OUTSIDE = 202383360, 2 * 4096 * 32000 + 4096


def test_the_gradient_of_a_unit_of_fsdp1_is_there_in_pieces_and_joined(make_run):
    run = make_run(**FSDP1)
    assert joined_gradients(run)[0].size.expected == (2 + 2) * BLOCK
    assert joined_gradients(run, root=True)[0].size.expected == (2 + 2) * OUTSIDE
    (part,) = backward_buffers(run)
    assert part.size.expected == 2 * (4096 * 11008 + 4096 * 32000)
    assert joined_gradients(make_run(**FSDP1, training__reduce_dtype="float32"))[0].size.expected == (2 + 4) * BLOCK


def test_fsdp2_reduces_each_gradient_as_it_is(make_run):
    assert joined_gradients(make_run(**{**FSDP1, "training__fsdp_version": 2})) == ()
    assert joined_gradients(make_run(**{**FSDP1, "hardware__world_size": 1})) == ()


@pytest.mark.parametrize(
    ("apart", "low", "high"), [(False, 4 * BLOCK, 4 * BLOCK), (None, 0, 4 * BLOCK), (True, None, None)]
)
def test_frozen_weights_have_gradients_where_their_unit_has_an_adapter(make_run, apart, low, high):
    more = {} if apart is None else {"training__fsdp_wraps_frozen_apart": apart}
    run = make_run(**FSDP1, **more, training__peft="lora", training__framework="custom")
    sizes = [(part.size.low, part.size.high) for part in joined_gradients(run)]
    assert sizes == ([] if low is None else [(low, high)])
    assert joined_gradients(run, root=True) == ()
