"""Targets of the policy: hardware and driver that a machine without them is told of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import run

FLEET = """\
[targets.old]
gpu = "8xA100-80GB"
driver = "550.54.15"

[targets.new]
gpu = "8xH100-80GB"
nodes = 2
driver = "580.65.06"
"""
RULE = "nvidia/driver-older-than-cuda"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("torch==2.11.0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _report(*arguments: object) -> dict[str, Any]:
    ran = run(*arguments, "--format", "json")
    assert ran.out, ran.err
    return json.loads(ran.out)


def _subjects_of(data: dict[str, Any], rule: str = RULE) -> list[str]:
    return [
        finding["subject"]
        for finding in data["findings"]
        if finding["rule_id"] == rule and finding["status"] == "affected"
    ]


def test_a_finding_is_for_the_target_it_strikes(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    data = _report("check", "requirements.txt")
    assert [subject["id"] for subject in data["subjects"]] == ["requirements.txt (on old)", "requirements.txt (on new)"]
    assert _subjects_of(data) == ["requirements.txt (on old)"]
    assert data["summary"]["exit_code"] == 1


def test_one_target_can_be_chosen(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    data = _report("check", "requirements.txt", "--target", "new")
    assert [subject["id"] for subject in data["subjects"]] == ["requirements.txt (on new)"]
    assert _subjects_of(data) == []
    ran = run("check", "requirements.txt", "--target", "nwe")
    assert ran.code == 2
    assert "targets: old, new" in ran.err


def test_the_command_line_wins_and_a_target_fills_the_rest(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    data = _report("check", "requirements.txt", "--driver", "550.1", "--gpu", "1xL40S")
    (subject,) = data["subjects"]
    facts = {fact["name"]: fact["value"] for fact in subject["facts"]}
    assert (facts["hardware.gpu"], facts["hardware.nodes"], facts["hardware.driver"]) == ("L40S", 1, "550.1")


def test_a_named_run_wins_over_the_target(project: Path) -> None:
    (project / "compatcheck.toml").write_text(
        FLEET + '[runs.r]\npaths = "requirements.txt"\ndriver = "580.1"\ntarget = "old"\n'
    )
    data = _report("check")
    (subject,) = data["subjects"]
    facts = {fact["name"]: fact["value"] for fact in subject["facts"]}
    assert subject["id"] == "r: requirements.txt (on old)"
    assert (facts["hardware.gpu"], facts["hardware.driver"]) == ("A100-80GB", "580.1")
    assert _subjects_of(data) == []


def test_facts_show_where_the_target_stands(project: Path) -> None:
    (project / "compatcheck.toml").write_text('[target]\ngpu = "8xH100-80GB"\ndriver = "550.54.15"\n')
    ran = run("facts", "requirements.txt")
    assert "compatcheck.toml:3 (target.driver)" in ran.out


def test_an_environment_is_told_that_its_hardware_is_declared(project: Path, tmp_path: Path) -> None:
    (project / "compatcheck.toml").write_text('[target]\ngpu = "8xH100-80GB"\ndriver = "550.54.15"\n')
    prefix = tmp_path / "packages"
    (prefix / "torch-2.11.0.dist-info").mkdir(parents=True)
    (prefix / "torch-2.11.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
    ran = run("env", "--prefix", prefix)
    words = " ".join(ran.out.split())
    assert "8xH100-80GB, driver 550.54.15: declared at compatcheck.toml:2 (target.gpu), not measured" in words


def test_a_driver_that_is_no_version_is_said_with_its_line(project: Path) -> None:
    (project / "compatcheck.toml").write_text('[target]\ndriver = "new"\n')
    ran = run("check", "requirements.txt")
    assert ran.code == 2
    assert "compatcheck.toml:2 (target.driver)" in ran.err


def test_targets_that_say_the_same_are_one(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    data = _report("check", "requirements.txt", "--driver", "550.1", "--gpu", "H100-80GB", "--nodes", "1")
    assert [subject["id"] for subject in data["subjects"]] == ["requirements.txt"]


def test_diff_asks_which_of_several_targets_is_meant(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    ran = run("diff", "requirements.txt", "requirements.txt")
    assert ran.code == 2
    assert "--target" in ran.err
    assert run("diff", "requirements.txt", "requirements.txt", "--target", "new").code == 0


def test_what_is_read_is_read_once_for_all_targets(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compatcheck.collectors.requirements import lines as requirements

    (project / "compatcheck.toml").write_text(FLEET)
    (project / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    read, counted = requirements.read_requirements, []

    def count(path: str, *files: Any, **options: Any) -> Any:
        counted.append(path)
        return read(path, *files, **options)

    monkeypatch.setattr(requirements, "read_requirements", count)
    data = _report("check", "requirements.txt", "ds.json")
    assert counted == ["requirements.txt"]
    first, second = ({fact["name"]: fact["value"] for fact in subject["facts"]} for subject in data["subjects"])
    assert (first["hardware.world_size"], second["hardware.world_size"]) == (8, 16)
    assert first["training.zero_stage"] == second["training.zero_stage"] == 3


def test_what_every_target_has_is_told_once(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    (project / "requirements.txt").write_text("torch==2.11.0\ntorchvision==0.20.1\n")
    text = run("check", "requirements.txt").out
    assert text.count("CRITICAL _stack/built-for-another-torch") == 1
    assert text.count(f"CRITICAL {RULE}") == 1
    assert re.search(r"as on old: _stack/built-for-another-torch, \d+ possible", " ".join(text.split()))
    assert run("check", "requirements.txt", "-v").out.count("CRITICAL _stack/built-for-another-torch") == 2


def test_the_hook_warns_of_a_dockerfile_before_it_is_built(project: Path) -> None:
    (project / "compatcheck.toml").write_text(FLEET)
    (project / "requirements.txt").unlink()
    (project / "Dockerfile").write_text(
        "FROM pytorch/pytorch:2.11.0-cuda13.0-cudnn9-devel\nRUN pip install trl==0.15.0\n"
    )
    (project / "web.Dockerfile").write_text("FROM nginx:1.27\n")
    data = _report("check", "--hook", "Dockerfile", "web.Dockerfile")
    assert _subjects_of(data) == ["Dockerfile (on old)"]
    (finding,) = [finding for finding in data["findings"] if finding["rule_id"] == RULE]
    assert any("by the tag pytorch/pytorch:2.11.0" in str(place) for place in finding["locations"])
    assert data["skipped"] == []


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_a_declared_device_is_judged_whatever_torch_is_built_for(project: Path, build: str) -> None:
    (project / "requirements.txt").write_text("torch==2.6.0\ndeepspeed==0.16.4\ntransformers==4.51.3\n")
    (project / "facts.yaml").write_text(
        "compatcheck: 1\ntraining:\n  framework: accelerate\n  zero_stage: 3\n  sharding: zero\n  micro_batch_size: 8\n"
        "  sequence_length: 8192\n  gradient_checkpointing: true\n  use_reentrant: false\n  optimizer: adamw\n"
    )
    told = ("--training", "facts.yaml", "--model", "Qwen/Qwen2.5-72B", "--set", "hardware.world_size=8")
    told += ("--set", f"runtime.torch_build={build}")
    report = _report("check", "requirements.txt", *told, "--gpu", "8xA100-40GB")
    found = {one["rule_id"] for one in report["findings"] if one["status"] == "affected"}
    assert {"_stack/run-does-not-fit", "deepspeed/zero3-params-kept-in-backward"} <= found
    if build == "cpu":  # and without a device there is none whose memory could run out
        without = _report("check", "requirements.txt", *told)
        assert "deepspeed/zero3-params-kept-in-backward" not in {one["rule_id"] for one in without["findings"]}
