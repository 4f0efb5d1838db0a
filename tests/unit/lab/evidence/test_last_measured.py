"""When a probe was last measured, by exported evidence and the person's own store."""

import json

import pytest

from compatcheck.lab.evidence import last_measured as last_measured_module
from compatcheck.lab.evidence.files import append_measurement, write_measurements
from compatcheck.lab.evidence.last_measured import UNDATED, describe_last, last_measured
from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.measurement_files import read_measurements


def measured(time=None, backend="cpu", status="ok", probe="masks"):
    return Measurement(
        probe=probe,
        probe_hash="0",
        backend=backend,
        accounting="storages",
        parameters={},
        versions={"torch": "2.13.0"},
        device="a CPU",
        status=status,
        time=time,
    )


def test_the_newest_day_counts_wherever_it_is_from(tmp_path):
    write_measurements(
        str(tmp_path / "exported" / "masks" / "a.jsonl"),
        [measured("2026-11-01T10:00:00+00:00"), measured("2026-11-03T10:00:00+00:00")],
    )
    store = str(tmp_path / "evidence.sqlite3")
    with EvidenceStore(store) as opened:
        opened.add(measured("2026-11-09T10:00:00+00:00", backend="fake"))
        opened.add(measured("2026-11-02T10:00:00+00:00"))
    last = last_measured("masks", exported=str(tmp_path / "exported"), store=store)
    assert last == {"cpu": "2026-11-03", "fake": "2026-11-09"}
    assert describe_last(("fake", "cpu", "cuda"), last) == "fake: 2026-11-09, cpu: 2026-11-03, cuda: never run"


@pytest.mark.parametrize("status", ["unsupported", "failed", "oom"])
def test_a_run_without_a_result_is_no_run(tmp_path, status):
    write_measurements(str(tmp_path / "masks" / "a.json"), [measured("2026-11-01T10:00:00+00:00", status=status)])
    assert last_measured("masks", exported=str(tmp_path), store=None) == {}


def test_another_probes_evidence_does_not_count(tmp_path):
    write_measurements(str(tmp_path / "masks" / "a.json"), [measured("2026-11-01T10:00:00+00:00", probe="scores")])
    assert last_measured("masks", exported=str(tmp_path), store=str(tmp_path / "none.sqlite3")) == {}


def test_an_installation_knows_what_its_checkout_had(tmp_path, monkeypatch):
    """The evidence itself stays behind; that a probe was run does not."""
    write_measurements(str(tmp_path / "masks" / "a.json"), [measured("2026-11-01T10:00:00+00:00")])
    compiled = tmp_path / "_measured.json"
    compiled.write_text(json.dumps(last_measured_module.compile_last(["masks", "scores"], str(tmp_path))))
    monkeypatch.setattr(last_measured_module, "COMPILED", compiled)
    last_measured_module._read_compiled.cache_clear()
    assert last_measured("masks", exported=None, store=None) == {"cpu": "2026-11-01"}
    assert last_measured("scores", exported=None, store=None) == {}
    last_measured_module._read_compiled.cache_clear()


def test_an_undated_measurement_is_a_run(tmp_path):
    write_measurements(str(tmp_path / "masks" / "a.json"), [measured()])
    assert last_measured("masks", exported=str(tmp_path), store=None) == {"cpu": UNDATED}


def test_measurements_are_added_one_by_one_and_read_back(tmp_path):
    path = str(tmp_path / "deep" / "gpu.jsonl")
    first, second = measured("2026-11-01T10:00:00+00:00"), measured("2026-11-02T10:00:00+00:00", status="oom")
    append_measurement(path, first)
    assert read_measurements(path) == (first,)
    append_measurement(path, second)
    assert read_measurements(path) == (first, second)
