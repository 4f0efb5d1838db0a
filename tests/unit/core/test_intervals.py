"""Intervals say exactly what a range says, in the order of PEP 440."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.version import Version

from compatcheck.core.intervals import Interval, UnorderedRangeError, find_intervals
from compatcheck.core.versions import all_ordered, compile_specifier

numbers = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
suffixes = st.sampled_from(
    ["", "", "", "a1", "rc1", ".post1", ".dev1", ".post0", "rc1.post1", ".post1.dev2", "a1.dev1", ".dev0"]
)
versions = st.builds(str.__add__, numbers, suffixes)
clauses = st.one_of(
    st.builds(str.__add__, st.sampled_from([">=", "<", "<=", "==", "!="]), versions),
    st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), numbers),
)
ranges = st.lists(st.lists(clauses, max_size=3).map(",".join), min_size=1, max_size=3).map(
    lambda parts: " || ".join(parts) if all(parts) else parts[0]
)


@given(ranges, versions)
@example("!=1.0", "1.0.post0.dev0")
@example("<=1.0", "1.0.post1.dev0")
@example("!=1.0.post1", "1.0.post2.dev0")
@example("!=1.0.dev1", "1.0.dev2")
def test_intervals_hold_what_the_range_holds(text: str, version: str) -> None:
    bounds = compile_specifier(text)
    intervals = find_intervals(bounds)
    parsed = Version(version)
    assert any(interval.holds(parsed) for interval in intervals) == all_ordered(bounds, parsed)


@given(ranges)
def test_intervals_are_ordered_and_apart(text: str) -> None:
    intervals = find_intervals(compile_specifier(text))
    for interval in intervals:
        if interval.start is not None and interval.end is not None:
            start, end = Version(interval.start), Version(interval.end)
            assert start < end or (interval.closed and start == end)
    for left, right in pairwise(intervals):
        assert left.end is not None
        assert right.start is not None
        assert Version(left.end) < Version(right.start)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (">=0.16.0,<0.16.8", [Interval("0.16.0", "0.16.8")]),
        ("", [Interval(None, None)]),
        ("==2.9.0", [Interval("2.9.0", "2.9.0", closed=True)]),
        ("<0.4.1 || >=0.5.0,<0.6.0", [Interval(None, "0.4.1"), Interval("0.5.0", "0.6.0")]),
        (">=1,<2 || >=2,<3", [Interval("1", "3")]),
        (">=0.9,!=0.10.*", [Interval("0.9", "0.10"), Interval("0.11", None)]),
        (">=2,<1", []),
        (">1.0rc1", [Interval("1.0rc1.post0.dev0", None)]),
    ],
)
def test_ranges_become_intervals(text: str, expected: list[Interval]) -> None:
    assert list(find_intervals(compile_specifier(text))) == expected


@pytest.mark.parametrize("text", ["===1.0", ">1.0", ">=1 || ===2"])
def test_range_without_order_is_refused(text: str) -> None:
    with pytest.raises(UnorderedRangeError):
        find_intervals(compile_specifier(text))
