"""The closed form beside full-size training steps that were traced on fake tensors (torch 2.13.0).

``traced_steps.json`` holds facts and peaks in bytes. Rows of the probe are from ``compatcheck probe run training_step --backend
fake --param steps=2`` with the dimensions of their facts; rows of the traced estimate also have what the caching allocator
reserves when it is replayed over the step's allocations.
"""

import json
import statistics
from pathlib import Path

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.memory.closed_form.estimate import estimate

ROWS = json.loads(Path(__file__).with_name("traced_steps.json").read_text())
NOT_TRACED = {"cuBLAS workspace"}


def estimate_row(row):
    package = Package("transformers", row["transformers"], Source("test"))
    facts = {name: tuple(value) if isinstance(value, list) else value for name, value in row["facts"].items()}
    return estimate(facts, Environment("test", {"transformers": package}, complete=False))


def name_row(row):
    facts = row["facts"]
    words = [facts["model.model_type"], str(facts["model.hidden_size"]), str(facts["training.sequence_length"])]
    words += ["checkpointed"] if facts.get("training.gradient_checkpointing") else []
    words += [
        str(facts[name])
        for name in ("training.peft", "training.sharding", "model.attn_implementation")
        if name in facts
    ]
    return "-".join(words)


@pytest.mark.parametrize("row", ROWS, ids=name_row)
@pytest.mark.parametrize("phase", ["forward", "backward", "step"])
def test_peaks_of_each_phase_are_within_five_percent_of_a_trace(row, phase):
    found = next(candidate for candidate in estimate_row(row).phases if candidate.name == phase)
    skipped = NOT_TRACED if row["by"] == "probe training_step" else set()
    expected = sum(
        part.size.expected
        for part in found.components
        if part.kind not in {"reserve", "context"} and part.name not in skipped
    )
    assert expected == pytest.approx(row["peaks"][phase], rel=0.05)


def test_half_of_the_traced_peaks_are_met_within_one_percent():
    errors = []
    for row in ROWS:
        skipped = NOT_TRACED if row["by"] == "probe training_step" else set()
        for found in estimate_row(row).phases:
            if found.name in row["peaks"]:
                parts = (part for part in found.components if part.kind not in {"reserve", "context"})
                expected = sum(part.size.expected for part in parts if part.name not in skipped)
                errors.append(abs(expected / row["peaks"][found.name] - 1))
    assert statistics.median(errors) < 0.005


@pytest.mark.parametrize("row", [row for row in ROWS if "reserved" in row], ids=name_row)
def test_what_the_allocator_reserves_lies_in_the_range(row):
    found = estimate_row(row).reserved
    assert found.low <= row["reserved"] <= found.high
    assert found.expected == pytest.approx(row["reserved"], rel=0.15)
