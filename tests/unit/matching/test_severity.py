"""Severity grows with size and shrinks with memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.report import FindingImpact, severity_rank
from compatcheck.core.units import GIB
from compatcheck.matching.severity import rate


def impact(size: int | None, memory: str = "device", effect: str = "memory") -> FindingImpact:
    return FindingImpact(size, size, size, effect, memory, "rank", "whole")


SIZES = st.one_of(st.integers(-10, 10), st.integers(0, 2**42))
MEMORY = st.one_of(st.none(), st.integers(1, 2**42))
KINDS = st.sampled_from(["device", "host", "shm"])


@given(SIZES, SIZES, MEMORY, MEMORY, KINDS)
def test_a_larger_cost_is_never_milder(
    first: int, second: int, device: int | None, host: int | None, memory: str
) -> None:
    small, large = sorted((first, second))
    assert severity_rank(rate(impact(small, memory), device, host)[0]) <= severity_rank(
        rate(impact(large, memory), device, host)[0]
    )


@given(st.integers(1, 2**42), st.integers(1, 2**42), st.integers(1, 2**42), KINDS)
def test_more_memory_is_never_worse(size: int, first: int, second: int, memory: str) -> None:
    less, more = sorted((first, second))
    assert severity_rank(rate(impact(size, memory), more, more)[0]) <= severity_rank(
        rate(impact(size, memory), less, less)[0]
    )


@pytest.mark.parametrize(
    ("size", "level"),
    [
        (8 * GIB, "high"),
        (8 * GIB - 1, "medium"),
        (80 * GIB // 100 + 1, "medium"),
        (GIB // 2, "low"),
        (1, "low"),
        (0, "info"),
        (-1, "info"),
    ],
)
def test_the_steps(size: int, level: str) -> None:
    assert rate(impact(size), 80 * GIB, None) == (level, None)


def test_unknown_hardware_is_said() -> None:
    level, remark = rate(impact(8 * GIB), None, 64 * GIB)
    assert level == "high"
    assert remark == "rated against 80 GiB: the device's memory is unknown"
    level, remark = rate(impact(8 * GIB, "host"), 80 * GIB, None)
    assert level == "low"
    assert remark == "rated against 1024 GiB: the node's main memory is unknown"


def test_host_costs_are_held_against_the_host() -> None:
    assert rate(impact(8 * GIB, "host"), 80 * GIB, 2048 * GIB) == ("low", None)
    assert rate(impact(8 * GIB, "host"), 80 * GIB, 64 * GIB) == ("high", None)


def test_what_has_no_size() -> None:
    assert rate(impact(None), 80 * GIB, None) == ("low", "size unknown, and nothing known bounds it")
    assert rate(impact(None), 80 * GIB, None, regression=True)[0] == "medium"
    needing = impact(None)._replace(needs=("model.parameters",))
    assert rate(needing, None, None) == ("low", "size unknown, and nothing known bounds it without model.parameters")
    assert rate(impact(None, effect="slower"), 80 * GIB, None) == ("low", None)
    assert rate(impact(None, effect="wrong_result"), 80 * GIB, None) == ("medium", None)
    assert rate(impact(None, effect="fails_to_start"), None, None) == ("critical", None)
    assert rate(impact(1, effect="fails_to_start"), None, None) == ("critical", None)


def test_an_unknown_size_is_rated_by_its_bound() -> None:
    level, remark = rate(impact(None), 80 * GIB, None, GIB // 2)
    assert level == "low"
    assert remark == "size unknown, rated by the 512.0 MiB that it is at most"
    assert rate(impact(None), 80 * GIB, None, 16 * GIB)[0] == "high"
    assert rate(impact(None), 80 * GIB, None)[0] == "low"
    assert rate(impact(None, "host"), 80 * GIB, None)[0] == "low"


def test_what_only_loading_takes_of_the_host_never_gates() -> None:
    loading = impact(512 * GIB, "host")._replace(phase="load")
    assert rate(loading, 80 * GIB, 1024 * GIB)[0] == "low"
    assert rate(impact(512 * GIB, "host"), 80 * GIB, 1024 * GIB)[0] == "high"
