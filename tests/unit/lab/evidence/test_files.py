"""Files of measurements: what is written is read again; a sweep says once what its measurements share."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import InputError, UsageError
from compatcheck.lab.evidence.files import export_measurements, measurement_files, name_file, write_measurements
from compatcheck.lab.measurement import from_json, to_json
from compatcheck.lab.measurement_files import read_measurements
from tests import ROOT
from tests.unit.lab.evidence.drawn_measurements import measurement, measurements

COMMITTED = ROOT / "fixtures/measurements"
FILES = [
    path
    for folder in sorted(COMMITTED.iterdir())
    if folder.name != "defaults"
    for path in sorted(folder.glob("*.json*"))
]


def as_set(found: object) -> list[str]:
    return sorted(json.dumps(to_json(from_json(to_json(one))), sort_keys=True) for one in found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@given(drawn=st.lists(measurements, min_size=1, max_size=6))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_again(tmp_path: Path, suffix: str, drawn: list) -> None:
    path = str(tmp_path / f"m.{suffix}")
    write_measurements(path, drawn)
    assert as_set(read_measurements(path)) == as_set(drawn)
    text = Path(path).read_text(encoding="utf-8")
    write_measurements(path, read_measurements(path))
    assert Path(path).read_text(encoding="utf-8") == text


def test_lines_say_once_what_is_shared(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    sweep = [measurement(versions={"deepspeed": f"0.16.{patch}", "torch": "2.13.0+cpu"}) for patch in (10, 2, 9)]
    write_measurements(str(path), sweep)
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(head)["common"]["versions"] == {"torch": "2.13.0+cpu"}
    assert lines == [f'{{"versions":{{"deepspeed":"0.16.{patch}"}}}}' for patch in (2, 9, 10)]
    # Two files may be joined end to end, and a line may stand without a header.
    other = measurement(probe="other")
    joined = (
        path.read_text(encoding="utf-8") + '{"compatcheck_measurements": 1}\n\n' + json.dumps(to_json(other)) + "\n"
    )
    path.write_text(joined, encoding="utf-8")
    assert as_set(read_measurements(str(path))) == as_set([*sweep, other])


def test_true_is_not_one(tmp_path: Path) -> None:
    path = str(tmp_path / "m.jsonl")
    write_measurements(path, [measurement(parameters={"x": True}), measurement(parameters={"x": 1})])
    assert [type(one.parameters["x"]) for one in read_measurements(path)] in ([bool, int], [int, bool])


@pytest.mark.parametrize(
    ("name", "text", "message", "line"),
    [
        ("m.json", "{", "not JSON", 1),
        ("m.json", "[1]", "no measurement: a measurement is a mapping", None),
        ("m.json", '{"status": "ok", "gpu": 1}', "no measurement has gpu", None),
        ("m.json", '{"status": "great"}', "'great' is none of ok", None),
        ("m.json", '{"status": "ok", "probe": "x"}', "backend", None),
        ("m.json", '{"status": "ok", "versions": {"torch": 2.1}}', "versions must map names to text", None),
        ("m.json", '{"status": "ok", "probe": 1}', "probe must be text", None),
        ("m.json", '{"status": "ok", "phases": [{"live_bytes": "1"}]}', "whole numbers", None),
        ("m.jsonl", '\n{"compatcheck_measurements": 2}\n', "format 2", 2),
        ("m.jsonl", '{"compatcheck_measurements": 1, "common": []}\n', "format 1", 1),
        ("m.jsonl", '{"compatcheck_measurements": 1}\n{"status"\n', "not JSON", 2),
        ("m.jsonl", '{"compatcheck_measurements": 1}\n3\n', "a measurement is a mapping", 2),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, text: str, message: str, line: int | None) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_measurements(str(path))
    assert caught.value.source is not None
    assert (caught.value.source.path, caught.value.source.line) == (str(path), line)


def test_export_makes_a_file_for_each_probe(tmp_path: Path) -> None:
    sweep = [measurement(versions={"deepspeed": version, "torch": "2.13.0"}) for version in ("0.16.10", "0.16.9")]
    target = str(tmp_path / "out")
    paths = export_measurements(target, [*sweep, measurement(probe="moe")])
    assert [Path(path).relative_to(target).as_posix() for path in paths] == [
        "moe/deepspeed-0.16.7-cpu.json",
        "zero3_release/deepspeed-0.16.9-0.16.10-cpu.jsonl",
    ]
    with pytest.raises(UsageError, match="there already"):
        export_measurements(target, [measurement(probe="moe")])
    (path,) = export_measurements(target, [measurement(probe="moe", device="other")], overwrite=True)
    assert read_measurements(path)[0].device == "other"
    (path,) = export_measurements(target, sweep, slug="two releases/../x")
    assert Path(path) == Path(target, "zero3_release", "two-releases-..-x.jsonl")
    assert measurement_files(target) == sorted(str(found) for found in Path(target).rglob("*.json*"))
    with pytest.raises(InputError, match="no such file"):
        measurement_files(str(tmp_path / "none"))


def test_files_are_named_after_what_varies() -> None:
    torch_only = measurement(versions={"torch": "2.13.0+cpu", "python": "3.11.7"})
    assert name_file([torch_only]) == "torch-2.13.0-cpu-cpu"
    assert name_file([measurement(versions={})]) == "cpu"
    pair = [measurement(versions={"peft": "0.12.0", "transformers": version}) for version in ("4.9", "4.10")]
    assert name_file(pair) == "transformers-4.9-4.10-cpu"


def test_writing_refuses_other_endings_and_places(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ends neither in"):
        write_measurements(str(tmp_path / "m.txt"), [measurement()])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        write_measurements(str(tmp_path / "file" / "m.json"), [measurement()])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(COMMITTED)))
def test_committed_evidence_is_readable(path: Path) -> None:
    found = read_measurements(str(path))
    assert found
    for one in found:
        assert one.probe == path.parent.name
        assert re.fullmatch("[0-9a-f]{12}", one.probe_hash), one.key
        assert one.versions["python"]
        assert one.versions["torch"]
        assert one.accounting in {"storages", "allocator", "cuda"}
        assert one.command is not None
        program = (
            "python tests/unit/memory/traced/measure_traces.py "
            if one.probe == "traced"
            else f"compatcheck probe run {one.probe} "
        )
        assert one.command.startswith(program)
        assert one.time
