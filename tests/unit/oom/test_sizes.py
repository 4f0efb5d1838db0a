"""Sizes as allocators print them, and what of a request reaches the message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.units import GIB, KIB, MIB
from compatcheck.oom.sizes import (
    parse_size,
    prints_as,
    request_range,
    round_request,
    segment_size,
    tell_rounding,
)
from tests.unit.oom.printed_messages import format_size

SIZES = st.one_of(st.integers(0, 2 * KIB), st.integers(0, 4 * MIB), st.integers(0, 4 * GIB), st.integers(0, 2**41))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (MIB, "1024.00 KiB"),
        (GIB, "1024.00 MiB"),
        (2**64, "17179869184.00 GiB"),
    ],
)
def test_sizes_print_as_public_messages_show_them(size, text) -> None:
    assert format_size(size) == text


@given(SIZES, SIZES)
def test_a_printed_size_reads_back_as_the_sizes_that_print_so(size, other) -> None:
    printed = parse_size(format_size(size))
    assert printed.low_bytes <= size <= printed.high_bytes
    if not printed.low_bytes <= other <= printed.high_bytes:
        assert format_size(other) != format_size(size)


@pytest.mark.parametrize(
    ("request_bytes", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (443023360, 424 * MIB),
    ],
)
def test_requests_become_segments(request_bytes, segment) -> None:
    assert segment_size(request_bytes) == segment


@given(st.integers(1, 2**40))
def test_the_request_of_a_printed_segment_lies_in_its_range(size) -> None:
    asked = parse_size(format_size(segment_size(size)))
    assert tell_rounding(asked) == "segment"
    assert prints_as(size, asked, "segment")
    low, high = request_range(asked, "segment")
    assert low <= size <= high or asked.text == "20.00 MiB"


@given(st.integers(21 * MIB, 2**40), st.sampled_from(["segment", "exact"]))
def test_no_request_beyond_the_range_prints_so(size, rounding) -> None:
    asked = parse_size(format_size(segment_size(size) if rounding == "segment" else size))
    low, high = request_range(asked, rounding)
    assert prints_as(low, asked, rounding)
    assert prints_as(high, asked, rounding) or (rounding == "segment" and round_request(high) > high)
    assert not prints_as(low - 513, asked, rounding)
    assert not prints_as(high + 513, asked, rounding)


def test_an_odd_number_of_mebibytes_is_no_segment() -> None:
    assert tell_rounding(parse_size("721.15 MiB")) == "block"
    assert tell_rounding(parse_size("11.00 MiB")) == "block"
    assert prints_as(756180480, parse_size("721.15 MiB"), "block")


def test_precision_is_that_of_the_digits_written() -> None:
    nine, exact = parse_size("9 GiB"), parse_size("9.28 GiB")
    assert nine.high_bytes - nine.low_bytes == GIB
    assert exact.high_bytes - exact.low_bytes + 1 == pytest.approx(GIB / 100, abs=1)


@pytest.mark.parametrize("text", ["", "GiB", "9.28", "9,28 GiB", "nine GiB", "9.28 GiBit", "-1 bytes"])
def test_other_texts_are_no_sizes(text) -> None:
    assert parse_size(text) is None
