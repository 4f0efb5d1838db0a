"""`compatcheck evidence`, and what findings say of measurements made here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measurement import Measurement, to_json
from compatcheck.lab.probes.probe import find_probe
from tests import ROOT
from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"
SCHEMA = json.loads((ROOT / "compatcheck/reporters/report.schema.json").read_text(encoding="utf-8"))


def measured(**changes: object) -> Measurement:
    probe = find_probe("zero3_release")
    values = {
        "probe": "zero3_release",
        "probe_hash": probe.hash_for({}),
        "backend": "cpu",
        "accounting": "allocator",
        "parameters": probe.complete({"layers": 4}),
        "versions": {"deepspeed": "0.16.4", "torch": "2.13.0+cpu", "python": "3.11.7"},
        "device": "x86_64 CPU, gloo",
        "status": "ok",
        "results": {"alive_after_backward_bytes": 8_392_708},
        "command": "compatcheck probe run zero3_release --backend cpu --param layers=4",
        "time": "2026-11-21T05:40:00+00:00",
    }
    return Measurement(**{**values, **changes})  # type: ignore[arg-type]


def keep(*measurements: Measurement) -> None:
    with EvidenceStore() as store:
        assert store.add_all(measurements) == len(measurements)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n", encoding="utf-8")
    (tmp_path / "facts.yaml").write_text(
        "compatcheck: 1\ntraining: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false}\n",
        encoding="utf-8",
    )
    return tmp_path


def finding(project: Path) -> dict[str, object]:
    ran = run("check", project / "requirements.txt", "--training", project / "facts.yaml", "--format", "json")
    report = json.loads(ran.out)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert ran.err == ""
    return next(found for found in report["findings"] if found["rule_id"] == RULE)


def test_a_place_where_no_store_can_be_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(tmp_path / "file" / "evidence.sqlite3"))
    ran = run("evidence", "list")
    assert ran.code == 4
    assert "cannot be a store of measurements: Not a directory" in ran.err


def test_reading_leaves_nothing_beside_the_store(tmp_path: Path) -> None:
    keep(measured())
    before = sorted(tmp_path.iterdir())
    for arguments in (("list",), ("show", "0"), ("export", tmp_path / "out" / "x.json")):
        run("evidence", *arguments)
    run("probe", "list")
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "out"] == before


def test_nothing_is_kept_yet(tmp_path: Path) -> None:
    assert run("evidence", "list") == (
        0,
        "",
        f"0 of 0 chosen, 0 kept · {tmp_path / 'evidence.sqlite3'} (not there yet)\n",
    )
    assert run("evidence", "list", "--format", "json").out == "[]\n"
    assert run("evidence", "show", "abc").code == 2
    assert run("evidence", "export", "out").code == 3
    assert not (tmp_path / "evidence.sqlite3").exists()


def test_list_and_show() -> None:
    failed = measured(status="timeout", results={}, reason="it hung in " + "a_long_name " * 20, time=None)
    keep(measured(), failed, measured(probe="moe_experts", versions={"transformers": "5.0.0"}))
    ran = run("evidence", "list")
    assert ran.code == 0
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    assert "deepspeed 0.16.4" in ran.out
    assert "alive_after_backward_bytes" in ran.out
    assert "3 of 3 chosen, 3 kept" in ran.err
    rows = json.loads(run("evidence", "list", "zero3-*", "--status", "ok", "--format", "json").out)
    assert [row["results"] for row in rows] == [{"alive_after_backward_bytes": 8_392_708}]
    shown = run("evidence", "show", rows[0]["id"][:8])
    assert shown.code == 0
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    for part in ("8,392,708", "layers=4", "compatcheck probe run zero3_release", "python 3.11.7"):
        assert part in " ".join(shown.out.split())
    assert json.loads(run("evidence", "show", rows[0]["id"], "--format", "json").out) == rows[0]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--package", "deepspeed"], 2),
        (["--package", "deepspeed>=0.16.4,<0.16.5"], 1),
        (["--package", "deepspeed == 0.16.8"], 1),
        (["--package", "vllm"], 0),
        (["--param", "layers=4"], 2),
        (["--param", "checkpointing=non-reentrant"], 2),
        (["--param", "layers=5"], 0),
        (["--since", "2026-11-22"], 1),
        (["--backend", "cuda"], 0),
        (["--limit", "1"], 1),
    ],
)
def test_filters(options: list[str], count: int) -> None:
    keep(measured(), measured(versions={"deepspeed": "0.16.8"}, time="2026-11-22T00:00:00+00:00"))
    assert len(json.loads(run("evidence", "list", *options, "--format", "json").out)) == count


@pytest.mark.parametrize("options", [["--package", "deepspeed>>1"], ["--param", "layers"], ["--since", "yesterday"]])
def test_filters_that_make_no_sense(options: list[str]) -> None:
    ran = run("evidence", "list", *options)
    assert ran.code == 2
    assert options[1] in ran.err
    assert "Traceback" not in ran.err


def test_export_and_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(measured(), measured(versions={"deepspeed": "0.16.8"}), measured(probe="moe_experts"))
    ran = run("evidence", "export", "out")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "out/moe_experts/deepspeed-0.16.4-cpu.json",
        "out/zero3_release/deepspeed-0.16.4-0.16.8-cpu.jsonl",
    ]
    assert run("evidence", "export", "out").code == 2
    assert run("evidence", "export", "out", "--overwrite").code == 0
    assert run("evidence", "export", "one.json", "moe*").code == 0
    assert run("evidence", "export", "one.json").code == 2
    (tmp_path / "out/other.json").write_text("{}", encoding="utf-8")
    monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(tmp_path / "second"))
    ran = run("evidence", "import", "out", "one.json")
    assert ran.code == 0
    assert ran.out.startswith("3 new, 1 already there, from 3 files")
    assert ran.err == "1 other files hold no measurements\n"
    ran = run("evidence", "import", "out", "missing.json", "out/other.json")
    assert ran.code == 4
    assert "0 new, 3 already there" in ran.out
    assert "missing.json: no such file" in ran.err
    assert "out/other.json: is no measurement" in ran.err


def test_a_file_of_a_directory_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    folder.mkdir()
    whole = json.dumps(to_json(measured()))
    (folder / "other.json").write_text('{"a": 1}')
    (folder / "good.json").write_text(whole)
    assert run("evidence", "import", folder).code == 0
    os.mkfifo(folder / "pipe.json")
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (folder / "half.json").write_text(whole[:100])
    (folder / "lines.jsonl").write_text(f'{whole}\n{{"a": 1}}\n')
    (folder / "typed.json").write_text(json.dumps({**to_json(measured()), "results": ""}))
    (folder / "sign.json").write_text(json.dumps({**to_json(measured()), "device": "\ud800"}))
    ran = run("evidence", "import", folder)
    said = [name for name in ("pipe", "gone", "half", "lines", "typed", "sign") if f"found/{name}.json" in ran.err]
    assert (ran.code, said) == (4, ["pipe", "gone", "half", "lines", "typed", "sign"])
    assert "1 other files" in ran.err
    assert run("evidence", "list").code == 0


def test_a_file_that_is_no_store_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "evidence.sqlite3").write_text("text" * 1000, encoding="utf-8")
    for command in (
        ["list"],
        ["show", "a"],
        ["export", "out"],
        ["import", str(ROOT / "fixtures/measurements/peft_dora")],
    ):
        ran = run("evidence", *command)
        assert ran.code == 4
        assert "is not a store of measurements" in ran.err
        assert "COMPATCHECK_EVIDENCE" in ran.err


def test_findings_say_what_was_measured_here(project: Path) -> None:
    assert finding(project)["measured_here"] is None
    keep(measured())
    here = finding(project)["measured_here"]
    assert isinstance(here, dict)
    assert {name: here[name] for name in ("probe", "metric", "value", "predicted", "verdict", "backend", "date")} == {
        "probe": "zero3_release",
        "metric": "alive_after_backward_bytes",
        "value": 8_392_708,
        "predicted": 0,
        "verdict": "bad",
        "backend": "cpu",
        "date": "2026-11-21",
    }
    inputs = ("check", project / "requirements.txt", "--training", project / "facts.yaml")
    text, markdown = run(*inputs).out, run(*inputs, "--format", "markdown").out
    said = "here 2026-11-21 on cpu with deepspeed 0.16.4, torch 2.13.0+cpu: zero3_release alive_after_backward_bytes 8.00 MiB"
    assert said in " ".join(text.split())
    first = next(index for index, line in enumerate(text.splitlines()) if "  measured " in line)
    assert all(len(line) <= 80 for line in text.splitlines()[first : first + 3])
    assert "measured here 2026" in markdown


def test_a_newer_measurement_that_is_healthy_is_said_too(project: Path) -> None:
    keep(measured(), measured(results={"alive_after_backward_bytes": 0}, time="2026-11-22T00:00:00+00:00"))
    here = finding(project)["measured_here"]
    assert isinstance(here, dict)
    assert (here["verdict"], here["date"]) == ("good", "2026-11-22")


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {"deepspeed": "0.16.5"}},
        {"status": "failed"},
        {"probe_hash": "another text"},
        {"probe": "moe_experts"},
        {"results": {}},
        {"parameters": find_probe("zero3_release").complete({"checkpointing": "reentrant"})},
        {"parameters": find_probe("zero3_release").complete({"world_size": 1})},
        {"parameters": {"layers": 4}},
    ],
)
def test_other_measurements_say_nothing_of_it(project: Path, changes: dict[str, object]) -> None:
    keep(measured(**changes))
    assert finding(project)["measured_here"] is None


def test_a_release_that_is_not_pinned_was_not_measured(project: Path) -> None:
    keep(measured())
    (project / "requirements.txt").write_text("deepspeed>=0.16.0,<0.16.8\n", encoding="utf-8")
    assert finding(project)["measured_here"] is None


def test_a_store_that_cannot_be_read_does_not_stop_a_check(project: Path) -> None:
    Path(os.environ["COMPATCHECK_EVIDENCE"]).write_text("text" * 1000, encoding="utf-8")
    ran = run("check", project / "requirements.txt", "--training", project / "facts.yaml", "--format", "json")
    report = json.loads(ran.out)
    assert any("not a store of measurements" in entry["reason"] for entry in report["skipped"])
    assert any(found["rule_id"] == RULE for found in report["findings"])
