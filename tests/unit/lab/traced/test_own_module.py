"""A module of the person's own: bytes equal to those of a real step, and errors that say where and what to do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compatcheck.lab.traced.request import Untraceable
from compatcheck.lab.traced.trace import run_program
from tests.unit.lab.traced.measure_traces import DEFAULTS
from tests.unit.lab.traced.test_trace import NEWEST, runtime

pytestmark = [pytest.mark.versions, pytest.mark.slow]
FOLDER = Path(__file__).parent
FILE = FOLDER / "own_modules.py"


def request(function: str, **more: Any) -> dict[str, Any]:
    source = {"file": str(FILE), "module": None, "function": function, "folder": str(FOLDER), "facts": {}}
    program = {**DEFAULTS, "backend": "fake", "accounting": "tracker", "config": {}, "mask": "none", "dtype": None}
    return {**program, "batch": None, "length": None, "outputs_kept": True, "module": {**source, **more}}


def run(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    found = run_program(requests, runtime(NEWEST))
    assert not isinstance(found, Untraceable), found.reason
    return found


def test_a_step_is_traced_as_real_tensors_take_it() -> None:
    # dropout is a CPU's on both sides, since no device is named
    names = ("build", "cast", "stepped", "frozen", "copied", "masked")
    interpreter = runtime(NEWEST)
    command = [interpreter.python, str(FOLDER / "account_steps.py"), *names]
    ran = subprocess.run(command, env=interpreter.environment(), capture_output=True, text=True, check=True)
    real = json.loads(ran.stdout.splitlines()[-1])
    for name, found in zip(names, run(*map(request, names)), strict=True):
        assert found["status"] == "ok", found["reason"]
        phases = {phase["name"]: [phase["peak_bytes"], phase["live_bytes"]] for phase in found["phases"]}
        assert phases == real[name], name


def test_gradients_that_are_cleared_late_lie_beside_a_forward_pass() -> None:
    interpreter = runtime(NEWEST)
    command = [interpreter.python, str(FOLDER / "account_steps.py"), "cleared_late"]
    ran = subprocess.run(command, env=interpreter.environment(), capture_output=True, text=True, check=True)
    real = json.loads(ran.stdout.splitlines()[-1])["cleared_late"]
    late, soon = run({**request("cleared_late"), "clears_late": True}, request("cleared_late"))
    for found in (late, soon):
        assert found["status"] == "ok", found["reason"]
    peaks = {phase["name"]: [phase["peak_bytes"], phase["live_bytes"]] for phase in late["phases"]}
    assert peaks == real
    (before,) = (phase["peak_bytes"] for phase in soon["phases"] if phase["name"] == "forward")
    assert peaks["forward"][0] - before == late["notes"]["trainable_bytes"]


def test_the_longest_batch_is_the_first_where_that_is_stated() -> None:
    interpreter = runtime(NEWEST)
    command = [interpreter.python, str(FOLDER / "account_steps.py"), "longest_first"]
    ran = subprocess.run(command, env=interpreter.environment(), capture_output=True, text=True, check=True)
    real = json.loads(ran.stdout.splitlines()[-1])["longest_first"]
    long = request("longest_first", facts={"sequence_length": 48})
    first, all_long = run({**long, "shorter": 30}, long)
    for found in (first, all_long):
        assert found["status"] == "ok", found["reason"]
    peaks = {phase["name"]: [phase["peak_bytes"], phase["live_bytes"]] for phase in first["phases"]}
    assert peaks == real
    most = {phase["name"]: phase["peak_bytes"] for phase in all_long["phases"]}
    assert most["forward"] > peaks["forward"][0], "optimizer states are beside all batches but the first"


def test_what_a_person_s_function_lacks_is_said_with_its_line() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    names = {
        "without_loss": ["a tensor [2, 48, 160]", "step(module, inputs) returns the loss"],
        "without_inputs": ["no inputs", "as Decoder takes it"],
        "on_meta": ["meta device", "build them without it"],
        "needs_more": ["takes widths", "--set training.widths="],
        "reads_numbers": [f"{FILE}:{lines.index('        print(loss.item())') + 1} in step", "numbers", ".item()"],
        "goes_back_itself": ["step returned NoneType", "leaves backward()"],
        "ends": [f"{FILE}:{lines.index('    raise SystemExit(2)') + 1} in ends", "__main__"],
        "nowhere": ["no function nowhere", "without_loss"],
    }
    for found, (name, words) in zip(run(*map(request, names)), names.items(), strict=True):
        assert found["status"] != "ok"
        assert [word for word in words if word not in found["reason"]] == [], (name, found["reason"])


def test_settings_are_given_to_parameters_of_their_names_and_a_gpu_is_not_needed() -> None:
    wide, checkpointed, on_a_gpu = run(
        request("build", facts={"micro_batch_size": 4}),
        {**request("build", facts={"micro_batch_size": 4}), "gradient_checkpointing": True},
        request("on_a_gpu"),
    )
    assert (wide["status"], checkpointed["status"], on_a_gpu["status"]) == ("ok", "ok", "ok"), on_a_gpu["reason"]
    forward = [
        next(one["live_bytes"] for one in found["phases"] if one["name"] == "forward") for found in (wide, checkpointed)
    ]
    assert forward[0] - forward[1] > 3 * 4 * 48 * 4 * 64 * 4, "what blocks keep of their wide layer is gone"
