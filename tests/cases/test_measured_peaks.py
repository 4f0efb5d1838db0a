"""The estimate beside peaks that scripts measured: it does not get worse, and the range holds what it says."""

import statistics
from functools import cache

import pytest

from benchmarks.measured_peaks import estimate_measured, read_peaks

MEDIANS = {"fitcheck-llm 0.3.1": 0.006, "vramcalc 0.1.2": 0.003, "LitGPT resource tables": 0.05}
"""Source → the largest median error of allocated peaks that is no step back."""


@cache
def results():
    return [(run, estimate_measured(run)) for run in read_peaks() if not run.apart]


def allocated(source):
    peaks = ((run.counted.get("allocated"), found.allocated) for run, found in results() if run.source == source)
    return [(truth, size) for truth, size in peaks if truth is not None]


@pytest.mark.parametrize("source", MEDIANS)
def test_the_median_error_of_a_source_stays(source):
    assert statistics.median(abs(size.expected / truth - 1) for truth, size in allocated(source)) <= MEDIANS[source]


@pytest.mark.parametrize("source", MEDIANS)
def test_four_of_five_peaks_lie_in_the_range(source):
    assert statistics.mean(size.low <= truth <= size.high for truth, size in allocated(source)) >= 0.8


def test_no_run_that_died_is_called_fits_and_none_that_ran_does_not_fit():
    verdicts = [(run.outcome, found.verdict.outcome) for run, found in results()]
    assert not {("oom", "fits"), ("fits", "does_not_fit")} & set(verdicts)
    assert sum(outcome == "oom" for outcome, _ in verdicts) == 12
