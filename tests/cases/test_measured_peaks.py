"""The estimate beside peaks that scripts measured: it does not get worse, and the range holds what it says."""

import math
import statistics
from functools import cache

import pytest

from benchmarks.measured_peaks import estimate_measured, read_peaks

MEDIANS = {"fitcheck-llm 0.3.1": 0.006, "vramcalc 0.1.2": 0.003, "LitGPT resource tables": 0.015}
"""Source → the largest median error of allocated peaks that is no step back."""

LAST = {"fitcheck-llm 0.3.1": 0.03, "vramcalc 0.1.2": 0.01, "LitGPT resource tables": 0.05}
"""The same for their 95th percentile."""


@cache
def results():
    return [(run, estimate_measured(run)) for run in read_peaks() if not run.apart]


def allocated(source):
    peaks = ((run.counted.get("allocated"), found.allocated) for run, found in results() if run.source == source)
    return [(truth, size) for truth, size in peaks if truth is not None]


@pytest.mark.parametrize("source", MEDIANS)
def test_the_median_error_of_a_source_stays(source):
    assert statistics.median(abs(size.expected / truth - 1) for truth, size in allocated(source)) <= MEDIANS[source]


@pytest.mark.parametrize("source", LAST)
def test_the_95th_percentile_of_a_source_stays(source):
    errors = sorted(abs(size.expected / truth - 1) for truth, size in allocated(source))
    assert errors[math.ceil(0.95 * len(errors)) - 1] <= LAST[source]


@pytest.mark.parametrize("source", MEDIANS)
def test_four_of_five_peaks_lie_in_the_range(source):
    assert statistics.mean(size.low <= truth <= size.high for truth, size in allocated(source)) >= 0.8


def wrong(run, found):
    return (run.outcome, found.verdict.outcome) in {("oom", "fits"), ("fits", "does_not_fit")}


def test_no_run_of_a_known_source_that_died_is_called_fits_and_none_that_ran_does_not_fit():
    known = [(run, found) for run, found in results() if not run.frozen]
    assert not [run.name for run, found in known if wrong(run, found)]
    assert sum(run.outcome == "oom" for run, _ in known) == 12


def test_of_outcomes_gathered_after_the_model_was_frozen_no_more_are_wrong_than_were_found():
    fresh = [
        (run, found) for run in read_peaks() if run.frozen and not run.unclear for found in [estimate_measured(run)]
    ]
    assert len(fresh) >= 166
    assert sum(run.outcome == "oom" for run, _ in fresh) >= 76
    assert not [run.name for run, found in fresh if run.outcome == "oom" and wrong(run, found)]
    assert sum(wrong(run, found) for run, found in fresh if run.outcome == "fits") <= 2
