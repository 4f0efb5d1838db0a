"""Files of conda and SBOMs are checked like any lock: by name, by content, from standard input, in a walk."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from compatcheck.cli.__main__ import main

RULE = "deepspeed/zero3-params-kept-in-backward"
TRAINER = {
    "per_device_train_batch_size": 1,
    "gradient_checkpointing": True,
    "gradient_checkpointing_kwargs": {"use_reentrant": False},
    "bf16": True,
    "output_dir": "out",
}
PLACE = "{prefix}/lib/python3.11/site-packages/{name}-{version}.dist-info/METADATA"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "args.json").write_text(json.dumps({**TRAINER, "deepspeed": "ds.json"}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as caught:
        main(["check", *arguments, "--format", "json"])
    return int(caught.value.code or 0), json.loads(capsys.readouterr().out)


def status(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding["subject"], finding["status"]) for finding in report["findings"] if finding["rule_id"] == RULE}


def environment(deepspeed: str) -> str:
    return (
        f"name: x\ndependencies:\n  - python=3.11\n  - pip:\n    - deepspeed=={deepspeed}\n    - transformers==4.48.3\n"
    )


def sbom(*places: tuple[str, str]) -> str:
    components = []
    for prefix, deepspeed in places:
        for name, version in (("deepspeed", deepspeed), ("transformers", "4.48.3")):
            location = PLACE.format(prefix=prefix, name=name, version=version)
            properties = [{"name": "syft:location:0:path", "value": location}]
            components.append({"name": name, "purl": f"pkg:pypi/{name}@{version}", "properties": properties})
    return json.dumps({"bomFormat": "CycloneDX", "components": components})


@pytest.mark.parametrize("name", ["environment.yml", "gpu.yaml"])
@pytest.mark.parametrize(("version", "affected"), [("0.16.4", True), ("0.16.8", False)])
def test_an_environment_file_by_any_name(
    capsys: pytest.CaptureFixture[str],
    name: str,
    version: str,
    affected: bool,  # noqa: FBT001 (a table)
) -> None:
    Path(name).write_text(environment(version))
    _, report = check(capsys, name, "args.json")
    assert bool(status(report)) == affected


def test_a_walk_pairs_an_environment_file_with_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("environment.yml").write_text(environment("0.16.4"))
    _, report = check(capsys, ".")
    assert {state for _, state in status(report)} == {"affected"}
    assert not report["skipped"]


def test_every_environment_of_an_sbom_is_a_subject(capsys: pytest.CaptureFixture[str]) -> None:
    Path("image.cdx.json").write_text(sbom(("/opt/a", "0.16.4"), ("/opt/b", "0.16.8")))
    _, report = check(capsys, "image.cdx.json", "args.json")
    assert len(report["subjects"]) == 2
    (found,) = status(report)
    assert "image.cdx.json (/opt/a)" in found[0]


def test_standard_input_tells_what_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    content = sbom(("/opt/a", "0.16.4")).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    _, report = check(capsys, "-", "args.json")
    assert {state for _, state in status(report)} == {"affected"}


def test_an_sbom_without_python_is_not_clean(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bom.json").write_text('{"bomFormat": "CycloneDX", "components": [{"name": "x", "purl": "pkg:npm/x@1"}]}')
    code, report = check(capsys, "bom.json")
    assert code == 4
    assert "none of them a Python package" in report["skipped"][0]["reason"]
