"""What a probe calls a measurement: also one below what it derives has a word of its own."""

from __future__ import annotations

import pytest

from compatcheck.lab.bisect import BisectSearch
from compatcheck.lab.bisection import Outcome
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.reporters.bisection import describe_transition


def measured(value: float) -> Measurement:
    return Measurement(
        probe="held_by_leaky",
        probe_hash="0",
        backend="cpu",
        accounting="storages",
        parameters={"factor": 500},
        versions={},
        device="a CPU",
        status="ok",
        results={"held_bytes": value},
    )


@pytest.mark.parametrize(
    ("value", "verdict"), [(1001, "bad"), (1000, "good"), (999, "good"), (900, "below"), (-8_470_528, "below")]
)
def test_less_than_predicted_is_not_good(probe: str, value: float, verdict: str) -> None:
    assert find_probe(probe).judge(measured(value)) == (verdict, value, 1000)


def test_a_search_finds_where_less_is_held_than_predicted() -> None:
    verdicts = {"1.0": "good", "1.1": "below", "1.2": "bad"}
    search = BisectSearch(
        list(verdicts),
        lambda versions: (Outcome(version=one, verdict=verdicts[one]) for one in versions),  # type: ignore[arg-type]
    )
    search.run(depth="all")
    assert [describe_transition(one) for one in search.transitions()] == [
        "less than predicted from 1.1 on (1.0 is as predicted)",
        "introduced in 1.2 (1.1 is good)",
    ]
