"""The caching allocator in Python against what PyTorch documents and tests of its own (test/test_cuda.py, notes/cuda.rst)."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from compatcheck.lab.traced.allocator import Block, CachingAllocator, NoMemoryError, Settings
from compatcheck.lab.traced.replay import POINTS, Event, Mark, replay
from tests.effort import at_most

MIB = 2**20
EXPANDABLE = Settings(expandable_segments=True)


def test_sizes_are_multiples_of_512_bytes() -> None:
    allocator = CachingAllocator()
    for size, block in ((1, 512), (512, 512), (513, 1024), (100_000, 100_352)):
        assert allocator.allocate(size).size == block
    assert allocator.requested == 1 + 512 + 513 + 100_000
    assert allocator.allocated == 512 + 512 + 1024 + 100_352


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (100 * MIB + 1, 102 * MIB),
    ],
)
def test_segments_depend_on_the_size(size: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert (allocator.reserved, allocator.segments) == (segment, 1)


def test_what_is_left_of_a_large_segment_is_in_use_unless_it_is_more_than_a_mebibyte() -> None:
    allocator = CachingAllocator()
    assert allocator.allocate(11 * MIB + 512 * 1024).size == 12 * MIB
    assert allocator.allocated == 12 * MIB
    assert CachingAllocator().allocate(10 * MIB + 512).size == 10 * MIB + 512


def test_small_and_large_requests_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(15 * MIB))
    allocator.allocate(MIB)
    assert allocator.reserved == 18 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MIB) for size in (40, 20, 30)]
    address = blocks[2].address
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate(25 * MIB).address == address
    assert allocator.reserved == 90 * MIB


def test_neighbours_are_joined() -> None:
    allocator = CachingAllocator()
    first, second, third = (allocator.allocate(4 * MIB) for _ in range(3))
    assert allocator.reserved == 20 * MIB
    for block in (first, third, second):
        allocator.free(block)
    assert allocator.allocate(20 * MIB).size == 20 * MIB
    assert allocator.reserved == 20 * MIB


def test_streams_have_pools_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(20 * MIB, stream=1))
    allocator.allocate(20 * MIB, stream=2)
    assert allocator.reserved == 40 * MIB
    allocator.allocate(20 * MIB, stream=1)
    assert allocator.reserved == 40 * MIB


def test_emptying_the_cache_keeps_segments_that_are_in_use() -> None:
    allocator = CachingAllocator()
    kept, freed = allocator.allocate(4 * MIB), allocator.allocate(4 * MIB)
    large = allocator.allocate(64 * MIB)
    allocator.free(freed)
    allocator.free(large)
    allocator.empty_cache()
    assert allocator.reserved == 20 * MIB
    allocator.free(kept)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments) == (0, 0)


def test_the_cache_is_emptied_before_memory_is_said_to_be_out() -> None:
    allocator = CachingAllocator(device_bytes=100 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(80 * MIB)
    assert (allocator.reserved, allocator.retries) == (80 * MIB, 1)
    with pytest.raises(NoMemoryError, match="31457280 bytes asked for, 83886080 allocated"):
        allocator.allocate(30 * MIB)


def test_fragments_make_a_request_fail_that_would_fit_elsewhere() -> None:
    def fill(settings: Settings) -> None:
        allocator = CachingAllocator(settings, device_bytes=120 * MIB)
        blocks = [allocator.allocate(20 * MIB) for _ in range(6)]
        for block in blocks[1:5]:
            allocator.free(block)
        blocks[1:5] = [allocator.allocate(11 * MIB) for _ in range(4)]
        assert allocator.allocate(36 * MIB).size == 36 * MIB

    fill(EXPANDABLE)
    with pytest.raises(NoMemoryError):
        fill(Settings())


def test_blocks_of_the_maximal_size_are_not_split() -> None:
    """As ``max_split_size_mb`` is documented: an oversize block serves requests of its size, within the rounding, only."""
    allocator = CachingAllocator(Settings(max_split_size_bytes=200 * MIB))
    allocator.free(allocator.allocate(256 * MIB))
    allocator.allocate(100 * MIB)
    assert allocator.reserved == 356 * MIB
    allocator.allocate(240 * MIB)
    assert allocator.reserved == 356 * MIB
    assert allocator.allocated == 356 * MIB, "the whole block is in use"


def test_an_oversize_block_is_given_back_before_the_cache_is_emptied() -> None:
    allocator = CachingAllocator(Settings(max_split_size_bytes=200 * MIB), device_bytes=1000 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (300, 500, 30)]:
        allocator.free(block)
    allocator.allocate(600 * MIB)
    assert allocator.retries == 0, "the two oversize blocks were enough"
    assert allocator.reserved == 630 * MIB


def test_old_blocks_are_collected_above_the_threshold() -> None:
    allocator = CachingAllocator(Settings(garbage_collection_threshold=0.5), allowed_bytes=1000 * MIB)
    old = allocator.allocate(400 * MIB)
    allocator.free(old)
    for _ in range(5):
        allocator.free(allocator.allocate(401 * MIB))
    assert allocator.reserved == 802 * MIB
    allocator.allocate(450 * MIB)
    assert allocator.reserved == 402 * MIB + 450 * MIB, "the block that was not asked for longest is gone"


@pytest.mark.parametrize(
    ("size", "divisions", "rounded"),
    [
        (1200, 1, 1536),
        (1200 * 1024, 4, 1280 * 1024),  # the example of roundup_power2_next_division, in KiB
        (1280 * 1024, 4, 1280 * 1024),
        (1281 * 1024, 4, 1536 * 1024),
        (2**30, 4, 2**30),
        (2**30 + 1, 8, 2**30 + 2**27),
    ],
)
def test_sizes_are_rounded_to_divisions_of_powers_of_two(size: int, divisions: int, rounded: int) -> None:
    assert Settings(roundup_power2_divisions=(divisions,) * 16).round(size) == rounded


def test_an_expandable_segment_grows_by_whole_pages() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    first = allocator.allocate(30 * MIB)
    assert (allocator.reserved, first.size) == (40 * MIB, 30 * MIB)
    second = allocator.allocate(45 * MIB)
    assert allocator.reserved == 80 * MIB
    assert second.address == first.address + 30 * MIB
    allocator.allocate(MIB)
    assert allocator.reserved == 82 * MIB, "small requests have a segment of pages of 2 MiB"
    assert allocator.segments == 0


def test_an_expandable_segment_gives_pages_back_from_its_middle() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    blocks = [allocator.allocate(50 * MIB) for _ in range(3)]
    assert allocator.reserved == 160 * MIB
    allocator.free(blocks[1])
    allocator.empty_cache()
    assert allocator.reserved == 160 * MIB - 40 * MIB, "pages 60 to 100 lie wholly in the free block"
    again = allocator.allocate(50 * MIB)
    assert again.address == blocks[1].address, "the lowest room is filled first"
    assert allocator.reserved == 160 * MIB


def test_a_growing_sequence_fragments_segments_but_not_an_expandable_one() -> None:
    """The example of Note [Expandable Segments]: requests that grow a little find no freed segment large enough."""
    events = [event for step in range(1, 40) for event in (Event(step, (100 + step) * MIB), Event(step, 0))]
    assert replay(events).peak_reserved > 15 * replay(events, settings=EXPANDABLE).peak_reserved


def test_phases_have_peaks_of_their_own() -> None:
    events = [Event(0, 12 * MIB), Event(1, 30 * MIB), Event(1, 0), Event(2, 4 * MIB)]
    first, second = replay(events, (Mark(0, "forward"), Mark(3, "backward"))).phases
    assert (first.name, first.requested, first.allocated, first.reserved) == (
        "forward",
        42 * MIB,
        42 * MIB,
        42 * MIB,
    )
    assert (second.name, second.allocated, second.reserved) == ("backward", 16 * MIB, 42 * MIB)


def test_a_run_out_of_memory_says_where() -> None:
    found = replay([Event(0, 60 * MIB), Event(1, 60 * MIB), Event(2, MIB)], device_bytes=100 * MIB)
    assert found.out_of_memory == 1
    assert found.peak_allocated == 60 * MIB


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 60 * MIB) | st.integers(1, 4096), st.integers(0, 1)), max_size=150
)
SETTINGS = st.sampled_from(
    [
        Settings(),
        EXPANDABLE,
        Settings(max_split_size_bytes=20 * MIB),
        Settings(roundup_power2_divisions=(4,) * 16),
        Settings(garbage_collection_threshold=0.3),
        Settings(expandable_segments=True, roundup_power2_divisions=(2,) * 16),
    ]
)


def check(allocator: CachingAllocator, live: list[Block]) -> None:
    assert allocator.requested <= allocator.allocated <= allocator.reserved
    assert allocator.allocated == sum(block.size for block in live)
    ranges = sorted((block.address, block.address + block.size) for block in live)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges)), "blocks overlap"


@hypothesis_settings(max_examples=80)
@given(OPERATIONS, SETTINGS, st.sampled_from([None, 200 * MIB, 500 * MIB]))
def test_blocks_never_overlap_and_everything_can_be_given_back(
    operations: list[tuple[int, int, int]], settings: Settings, limit: int | None
) -> None:
    allocator = CachingAllocator(settings, device_bytes=limit, allowed_bytes=limit)
    live: dict[int, Block] = {}
    for number, size, stream in operations:
        if number in live:
            allocator.free(live.pop(number))
        else:
            try:
                live[number] = allocator.allocate(size, stream)
            except NoMemoryError:
                assert limit is not None
                assert allocator.reserved + Settings.segment(settings, settings.round(size)) > limit
        check(allocator, list(live.values()))
        assert limit is None or allocator.reserved <= limit
    for block in live.values():
        allocator.free(block)
    assert (allocator.requested, allocator.allocated) == (0, 0)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments) == (0, 0)


@pytest.mark.parametrize("settings", [Settings(), EXPANDABLE], ids=["segments", "expandable"])
def test_a_hundred_thousand_events_take_less_than_a_second(settings: Settings) -> None:
    draw = random.Random(7)
    sizes = [draw.randrange(1, 4096) for _ in range(10)] + [draw.randrange(1, 200) * MIB for _ in range(20)]
    events: list[Event] = []
    live: list[int] = []
    while len(events) < 100_000:
        if len(live) > 800 or (live and draw.random() < 0.48):
            events.append(Event(live.pop(draw.randrange(len(live))), 0))
        else:
            live.append(len(events))
            events.append(Event(len(events), draw.choice(sizes)))
    with at_most(10):
        found = replay(events, settings=settings)
    assert len(found.timeline) <= POINTS
    assert found.peak_reserved >= found.peak_allocated > 0
