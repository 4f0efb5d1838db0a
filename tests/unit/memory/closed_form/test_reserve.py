import pytest

from compatcheck.core.estimate import Size, exactly
from compatcheck.memory.closed_form.estimate import training_phases
from compatcheck.memory.closed_form.reserve import Held, Shares, not_itemised, reserve, segments


def test_loss_and_step_lie_side_by_side_and_the_larger_of_backward_and_step_counts():
    shares = Shares(lasting=exactly(10), loss=exactly(7), kept=exactly(3), step=exactly(5), apart=exactly(2))
    # low: all blocks are used again; expected: 10 + 7 + 5; high: nothing is used again
    assert segments(shares) == (Size(20, 22, 25), exactly(2))


def test_the_cache_is_what_the_allocator_holds_beyond_need(make_run):
    part = reserve(make_run(), exactly(1000), Held(exactly(1500), exactly(0)))
    assert part.kind == "reserve"
    assert part.size == Size(0, 530, 575)


def test_expandable_segments_halve_the_waste(make_run):
    part = reserve(make_run(allocator__expandable_segments=True), exactly(1000), Held(exactly(1500), exactly(0)))
    assert part.size.expected == 265


@pytest.mark.parametrize("expandable", [False, True])
def test_gradients_on_a_stream_of_their_own_are_held_beside_all_else(make_run, expandable):
    run = make_run(allocator__expandable_segments=expandable)
    shared = reserve(run, exactly(1000), Held(exactly(1500), exactly(0))).size.expected
    apart = Held(exactly(1500), exactly(100))
    assert reserve(run, exactly(1000), apart).size.expected == shared + 100
    assert (
        reserve(run, exactly(1100), apart, gradients=100).size.expected == shared
    )  # they are allocated at that instant


def test_what_fsdp_shards_of_gradients_is_held_apart(make_run):
    facts = {"training__sharding": "fsdp", "training__fsdp_version": 2, "hardware__world_size": 8}
    phases = {
        phase.name: phase.components for phase in training_phases(make_run(**facts, training__micro_batch_size=64))
    }
    (held,) = (part.size.expected for part in phases["backward"] if part.kind == "reserve")
    (sharded,) = (part.size.expected for part in phases["step"] if part.kind == "gradients")
    assert not [part for part in phases["backward"] if part.kind == "gradients"]
    assert held > sharded > 2**30


def test_before_the_first_step_only_blocks_are_rounded(make_run):
    assert reserve(make_run(), exactly(1000), None).size == Size(0, 20, 50)


def test_what_is_not_itemised_is_expected_to_be_nothing(make_run):
    assert not_itemised(make_run(), exactly(1000), exactly(1000)).size == Size(-50, 0, 80)


def test_the_range_covers_other_instants_of_the_phase(make_run):
    # of an instant 900 .. 1000 .. 1100, beside another that lies between 950 and 1200
    assert not_itemised(make_run(), Size(900, 1000, 1100), Size(950, 1000, 1200)).size == Size(2, 0, 196)
