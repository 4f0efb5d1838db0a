"""`compatcheck probe`: the list, and runs of many probes at once."""

import json

import pytest

from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import find_probe
from tests.cli.run_cli import run


@pytest.fixture
def measured(monkeypatch):
    """Stand in for the processes: every task measures what its probe predicts, or what it is told."""
    tasks = []
    told = {}

    class Overlays:
        def open(self, requirements):
            return requirements

    def run_tasks(given, _interpreter, *, keep, **_options):
        for task in given:
            tasks.append(task)
            predicted = task.probe.module.predict(task.parameters)
            status = told.get(task.probe.name, "ok")
            keep(
                task,
                Measurement(
                    probe=task.probe.name,
                    probe_hash=task.hash,
                    backend=task.backend,
                    accounting=task.accounting,
                    parameters=dict(task.parameters),
                    versions={"torch": "2.13.0", "python": "3.11.7"},
                    device="a device",
                    status="ok" if status == "bad" else status,
                    results={
                        name: value + (1 + task.probe.module.tolerance(task.parameters) if status == "bad" else 0)
                        for name, value in predicted.items()
                    },
                    reason=None if status in {"ok", "bad"} else "it is not there",
                    time="2026-11-21T06:00:00+00:00",
                ),
            )

    monkeypatch.setattr("compatcheck.lab.probe_runs.run_tasks", run_tasks)
    monkeypatch.setattr("compatcheck.lab.environments.choice.EnvironmentChoice.overlays", lambda _: Overlays())
    return tasks, told


def test_all_runs_every_probe_of_a_back_end_at_all_its_sizes(measured):
    ran = run("probe", "run", "--all", "--backend", "cuda", "--no-store")
    tasks, _ = measured
    assert ran.code in {0, 3}, ran.err
    assert {"conv3d_workspace", "sdpa_gqa_mask", "record_stream_hold"} <= {task.probe.name for task in tasks}
    assert {task.backend for task in tasks} == {"cuda"}
    sizes = find_probe("cublas_workspace").module.SIZES
    assert sum(task.probe.name == "cublas_workspace" for task in tasks) == len(sizes)
    assert "cublas_workspace" in ran.out
    assert "8,519,680" in ran.out


def test_a_pattern_narrows_it_and_one_command_gives_table_and_lines(measured, tmp_path):
    output = tmp_path / "cpu.jsonl"
    ran = run("probe", "run", "--all", "sdpa_*", "--backend", "cpu", "--no-store", "--output", output)
    assert ran.code == 0, ran.err
    assert {task.probe.name for task in measured[0]} >= {"sdpa_math_fallback"}
    assert all(task.probe.name.startswith("sdpa_") for task in measured[0])
    head = next(line for line in ran.out.splitlines() if line.startswith("probe "))
    assert head.split() == ["probe", "parameters", "metric", "predicted", "measured", "difference", "verdict"]
    assert f"{len(measured[0])} good" in ran.out
    assert len(read_measurements(str(output))) == len(measured[0])


def test_one_that_is_bad_decides_the_exit_code(measured):
    measured[1]["sdpa_math_fallback"] = "bad"
    ran = run("probe", "run", "--all", "sdpa_math*", "--backend", "cpu", "--no-store")
    assert ran.code == 1
    assert " bad" in ran.out


def test_one_without_a_result_says_why(measured):
    measured[1]["cuda_context"] = "unsupported"
    ran = run("probe", "run", "--all", "cuda_*", "--backend", "cuda", "--no-store")
    assert ran.code == 3
    assert "cuda_context: it is not there" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no probe is named"),
        (("--all",), "--all needs --backend"),
        (("--all", "--backend", "cpu", "--param", "layers=4"), "--all takes no --param"),
        (("--all", "--backend", "fake", "cuda_context"), "none of these probes runs on fake"),
        (("nothing_like_*", "--backend", "cpu"), "no probe matches 'nothing_like_*'"),
        (("conv3d_workspace", "--output", "x.json"), "does not end in .jsonl"),
    ],
)
def test_what_cannot_be_run_is_said(measured, arguments, message):
    ran = run("probe", "run", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert not measured[0]


def test_the_list_says_where_a_probe_was_never_run(tmp_path, monkeypatch):
    monkeypatch.setattr("compatcheck.lab.evidence.last_measured.exported_evidence", lambda: None)
    with EvidenceStore(str(tmp_path / "evidence.sqlite3")) as store:
        store.add(
            Measurement(
                probe="cuda_context",
                probe_hash="0",
                backend="cuda",
                accounting="cuda",
                parameters={},
                versions={"torch": "2.13.0"},
                device="NVIDIA H100",
                status="ok",
                time="2026-11-21T06:00:00+00:00",
            )
        )
    lines = run("probe", "list").out.splitlines()
    assert "cuda_context  [cuda: 2026-11-21]" in lines
    assert "conv3d_workspace  [cuda: never run]" in lines
    rows = {row["name"]: row for row in json.loads(run("probe", "list", "--format", "json").out)}
    assert rows["cuda_context"]["last_measured"] == {"cuda": "2026-11-21"}
    assert rows["conv3d_workspace"]["last_measured"] == {"cuda": None}
