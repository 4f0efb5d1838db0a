"""A verdict that a run fits does not rest on what nobody read or states."""

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.memory.closed_form.estimate import estimate_run
from compatcheck.memory.closed_form.verdict import REPORTED, UNREAD, judge
from compatcheck.memory.read_run import read_run
from tests.unit.memory.closed_form.conftest import BASE
from tests.unit.memory.traits import with_traits

LONG = {"training__sequence_length": 8192, "training__gradient_checkpointing": True}


@pytest.fixture
def make_open():
    """Make a run of which nobody says which attention it has."""

    def make(packages, **changes):
        found = {name: Package(name, version, Source("test")) for name, version in packages.items()}
        facts = {**BASE, **{name.replace("__", "."): value for name, value in changes.items()}}
        del facts["model.attn_implementation"]
        return read_run(with_traits(facts, found), Environment("test", found, complete=False)).run

    return make


def judged(run):
    found = estimate_run(run)
    return found.verdict, [left.reason for left in found.unmodelled]


@pytest.mark.parametrize(
    ("framework", "packages", "read"),
    [
        ("llamafactory", {"llamafactory": "0.7.0", "transformers": "4.40.1"}, False),
        ("llamafactory", {"llamafactory": "0.7.1", "transformers": "4.41.2"}, True),
        ("llamafactory", {"transformers": "4.41.2"}, True),  # the newest, where nobody says
        ("axolotl", {"axolotl": "0.4.1"}, False),
        ("hf_trainer", {"transformers": "4.35.2"}, False),
        ("trl", {"trl": "0.9.2", "transformers": "4.35.2"}, False),  # of what it is built on
        ("lightning", {}, False),
    ],
)
def test_a_release_that_nobody_read_is_said_and_not_called_fitting(make_run, framework, packages, read):
    packages = {"torch": "2.3.0", **packages}
    run = make_run(packages, training__framework=framework, training__peft="lora", hardware__memory_bytes=48 * GIB)
    verdict, reasons = judged(run)
    assert verdict.outcome == ("fits" if read else "marginal")
    assert (
        any(
            ("read" in reason and "taken as" in reason) or "is its own" in reason or "are its own" in reason
            for reason in reasons
        )
        is not read
    )
    assert ("times what was expected" in (verdict.condition or "")) is not read
    needed = max(phase.needed.expected for phase in estimate_run(run).phases)
    roomy = run._replace(limit=int(UNREAD * needed) + 1)
    assert judged(roomy)[0].outcome == "fits"


def test_the_kernel_of_attention_hangs_on_torch_where_nobody_says_which(make_open, make_run):
    stated = {"training__framework": "hf_trainer", "training__peft": "lora", "hardware__memory_bytes": 80 * GIB, **LONG}
    open_, _ = judged(make_open({"transformers": "4.41.2"}, **stated))
    assert open_.outcome == "marginal"
    assert "before 2.1.1 it is eager" in open_.condition
    for packages in ({"transformers": "4.41.2", "torch": "2.3.0"}, {"transformers": "4.57.1"}, {}):
        assert judged(make_open(packages, **stated))[0].outcome == "fits"
    assert judged(make_run({"transformers": "4.41.2"}, **stated))[0].outcome == "fits"
    short = make_open({"transformers": "4.41.2"}, **{**stated, "training__sequence_length": 512})
    assert judged(short)[0].outcome == "fits"


def test_before_sdpa_attention_is_eager(make_open):
    assert make_open({"transformers": "4.35.2"}).model.attention == "eager"
    assert make_open({"transformers": "4.36.0"}).model.attention == "sdpa"


def test_what_cuda_reports_of_a_device_is_what_a_run_fits_in(make_run):
    phases = estimate_run(make_run(training__micro_batch_size=64)).phases
    most = max(phase.needed.high for phase in phases)
    assert judge(phases, most).outcome == "marginal"
    assert judge(phases, int(max(phase.size.high for phase in phases) / REPORTED[0]) + 1).outcome == "fits"
