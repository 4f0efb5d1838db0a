"""The campaigns of the fuzzer run, find what is wrong, and nothing is wrong with a few inputs of each kind."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.fuzz.campaign import Case, Outcome, Runner, make_steps, minimise
from benchmarks.fuzz.commands import COMMANDS
from benchmarks.fuzz.fuzz import TARGETS
from benchmarks.fuzz.growth import FILLERS, Series, measure
from benchmarks.fuzz.mutation import OPERATORS, mutate
from compatcheck.cli import crash

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its limits are of Linux")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    kept = dict(os.environ), resource.getrlimit(resource.RLIMIT_AS), Path.cwd(), crash.report_crash
    handler = signal.getsignal(signal.SIGPROF)
    try:
        yield Runner(tmp_path)
    finally:
        os.environ.clear()
        os.environ.update(kept[0])
        resource.setrlimit(resource.RLIMIT_AS, kept[1])
        os.chdir(kept[2])
        crash.report_crash = kept[3]
        signal.signal(signal.SIGPROF, handler)


@pytest.mark.parametrize("names", [[name] for name in COMMANDS] + [list(TARGETS)], ids=[*COMMANDS, "parsers"])
def test_a_few_inputs_are_read_or_refused(names: list[str], runner: Runner) -> None:
    for name in names:
        draw, run = make_steps(runner, name)
        for number in range(4):
            outcome = run(draw(number))
            assert outcome.found is None, (name, number, outcome.detail)


def test_a_number_gives_the_same_input() -> None:
    assert mutate(b"a == 1\n", 5) == mutate(b"a == 1\n", 5)
    assert len({mutate(b"torch==2.5.0\ntrl>=0.9\n", number) for number in range(200)}) > 100
    assert len(OPERATORS) >= 10


def test_an_exception_is_found_and_made_smaller(runner: Runner) -> None:
    def fail(data: bytes | str) -> None:
        assert b"bad" not in bytes(data, "utf-8") if isinstance(data, str) else b"bad" not in data

    def run(case: Case) -> Outcome:
        return runner.run_parser("json", fail, case)

    case = Case({TARGETS["json"].name: b"one\ntwo\nvery bad indeed\nthree\n"})
    outcome = run(case)
    assert outcome.found is not None
    assert list(minimise(case, run, outcome.found).files.values()) == [b"bad"]


def test_what_takes_too_long_and_too_much_is_found(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.fuzz.campaign.SECONDS_PER_INPUT", 0.2)

    def hang(_: bytes | str) -> None:
        while True:
            pass

    slow = runner.run_parser("json", hang, Case({"a": b""}))
    assert (slow.found or "").startswith("slow")
    monkeypatch.setattr("benchmarks.fuzz.campaign.MAX_MIB", 1)
    large = runner.run_parser("json", lambda _: None, Case({"a": b""}))
    assert (large.found or "").startswith("memory")


@pytest.mark.parametrize(("power", "above"), [(1, False), (2, True)])
def test_growth_is_told(power: int, above: bool) -> None:  # noqa: FBT001 (a case)
    def run(case: Case) -> Outcome:
        return Outcome(None, (sum(map(len, case.files.values())) / 120_000) ** power, 0)

    assert (measure(Series("json", FILLERS.index("["), 0), run)[1] > 1.2) == above
