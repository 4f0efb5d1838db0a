"""`compatcheck estimate --trace`, with a real interpreter that has torch and transformers."""

from __future__ import annotations

import json
import os

import pytest

from tests import ROOT
from tests.cli.run_cli import run

pytestmark = [pytest.mark.versions]
PYTHON = os.environ.get("COMPATCHECK_TEST_PYTHON", "")
SETTINGS = {
    "training.framework": "hf_trainer",
    "training.trainer": "causal_lm",
    "training.sharding": "none",
    "training.mixed_precision": "no",
    "training.param_dtype": "bfloat16",
    "training.compute_dtype": "bfloat16",
    "training.micro_batch_size": "2",
    "training.sequence_length": "1024",
    "training.gradient_checkpointing": "false",
    "training.optimizer": "adamw",
    "hardware.world_size": "1",
    "run.attention_mask": "none",
}


@pytest.mark.skipif(not PYTHON, reason="COMPATCHECK_TEST_PYTHON names no interpreter with torch")
@pytest.mark.parametrize("release", ["4.47.1", "4.57.6"])
def test_the_trace_and_the_closed_form_agree(release: str) -> None:
    settings = [argument for name, value in SETTINGS.items() for argument in ("--set", f"{name}={value}")]
    with open("requirements.txt", "w", encoding="utf-8") as file:
        file.write(f"transformers=={release}\n")
    arguments = ("estimate", "requirements.txt", "--model", "qwen2.5-0.5b", *settings, "--format", "json")
    peaks = {}
    for name, more in (("closed_form", ()), ("traced", ("--trace", "--python", PYTHON))):
        ran = run(*arguments, *more)
        estimate = json.loads(ran.out)["subjects"][0]["estimate"]
        assert estimate["method"] == name
        peaks[name] = estimate["allocated_bytes"]["expected"]
    assert peaks["closed_form"] == pytest.approx(peaks["traced"], rel=0.03)


@pytest.mark.skipif(not PYTHON, reason="COMPATCHECK_TEST_PYTHON names no interpreter with torch")
def test_a_module_of_ones_own_is_traced_and_an_error_of_it_has_its_line() -> None:
    file = ROOT / "tests" / "unit" / "lab" / "traced" / "own_modules.py"
    settings = ("--python", PYTHON, "--set", "training.micro_batch_size=4", "--format", "json")
    (subject,) = json.loads(run("estimate", "--module", f"{file}:build", *settings).out)["subjects"]
    assert subject["estimate"]["method"] == "traced"
    assert any(detail.startswith(f"traced Decoder of build of {file}: ") for detail in subject["details"])
    failed = run("estimate", "--module", f"{file}:reads_numbers", *settings)
    assert (failed.code, failed.out) == (2, "")
    assert f"{file}:" in failed.err
    assert ".item()" in failed.err
