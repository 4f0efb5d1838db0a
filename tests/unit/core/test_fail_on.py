"""--fail-on is a severity, a size, a share or never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.errors import UsageError
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.report import SEVERITIES, Finding, FindingImpact
from compatcheck.core.units import GIB


def finding(severity: str, size: int | None = None) -> Finding:
    impact = FindingImpact(size, size, size, "memory", "device", "rank", "whole")
    return Finding(
        "a/b", "s", "train", "regression", "t", "affected", severity, "measured", "m", impact, (), (), (), (), (), ()
    )


@pytest.mark.parametrize("wanted", SEVERITIES)
def test_a_severity_counts_from_itself_upwards(wanted: str) -> None:
    threshold = parse_threshold(wanted)
    reached = [level for level in SEVERITIES if threshold.reached_by(finding(level), None)]
    assert reached == list(SEVERITIES[SEVERITIES.index(wanted) :])


@given(st.integers(0, 2**45), st.integers(1, 2**45))
def test_a_size_counts_what_is_at_least_as_large(size: int, limit: int) -> None:
    threshold = parse_threshold(f"{limit}B")
    assert threshold.reached_by(finding("high", size), None) == (size >= limit)


def test_a_share_is_of_the_device_or_of_80_gib() -> None:
    threshold = parse_threshold("10%")
    assert threshold.reached_by(finding("low", 4 * GIB), 40 * GIB)
    assert not threshold.reached_by(finding("high", 4 * GIB - 1), 40 * GIB)
    assert threshold.reached_by(finding("low", 8 * GIB), None)
    assert not threshold.reached_by(finding("low", 7 * GIB), None)


def test_what_does_not_start_fails_every_size_and_never_fails_nothing() -> None:
    for text in ("5GiB", "50%"):
        assert parse_threshold(text).reached_by(finding("critical"), None)
        assert not parse_threshold(text).reached_by(finding("medium"), None)
    assert not parse_threshold("never").reached_by(finding("critical", 2**60), None)


@pytest.mark.parametrize(
    "text", ["", "Medium", "5", "0GiB", "0%", "101%", "-1%", "nan%", "inf%", "%", "five", "5 apples", "all"]
)
def test_other_texts_are_usage_errors_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_threshold(text)
    assert caught.value.hint


def test_spaces_do_not_matter() -> None:
    assert parse_threshold(" 5 GiB ").size_bytes == 5 * GIB
    assert parse_threshold("100%").share == 1.0
