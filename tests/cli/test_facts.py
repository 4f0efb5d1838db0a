"""`compatcheck facts`: what was understood, and that it can be given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import run

FILES = {
    "requirements.txt": "deepspeed==0.16.4\ntransformers==4.48.0\ntorch==2.6.0\n",
    "ds.json": '{"bf16": {"enabled": "auto"}, "zero_optimization": '
    '{"stage": 3, "reduce_bucket_size": "auto", "overlap_comm": "auto"}}',
    "train.yaml": "output_dir: out\nlearning_rate: 1.0e-5\nbf16: true\ngradient_checkpointing: true\n"
    "per_device_train_batch_size: 2\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in FILES.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def facts(*arguments: object) -> dict[str, Any]:
    ran = run("facts", *arguments, "--format", "json")
    assert ran.code == 0, ran
    (subject,) = json.loads(ran.out)["subjects"]
    return {fact["name"]: fact["value"] for fact in subject["facts"]}


def test_facts_have_values_origins_and_lines(project: Path) -> None:
    text = run("facts", project, "--model", "llama-3-8b", "--gpu", "8xH100-80GB").out
    assert "train.yaml:4" in text
    assert "default of the HF Trainer (transformers 4.48.0)" in text
    assert "hardware.world_size" in text
    assert "not filled in: training.overlap_comm" in text
    assert "16,777,216" in text


def test_a_facts_file_given_back_with_training_says_the_same(project: Path, tmp_path: Path) -> None:
    first = facts(project, "--model", "llama-3-8b", "--gpu", "8xH100-80GB")
    written = tmp_path / "facts.yaml"
    ran = run("facts", project, "--model", "llama-3-8b", "--gpu", "8xH100-80GB", "--format", "yaml")
    written.write_text(ran.out, encoding="utf-8")
    again = facts(written)
    assert {name: again.get(name) for name in first} == first
    second = facts(project / "requirements.txt", "--training", written)
    assert {name: second.get(name) for name in first} == first


def test_findings_of_the_facts_file_are_those_of_the_files(project: Path, tmp_path: Path) -> None:
    options = ("--model", "llama-3-8b", "--gpu", "8xH100-80GB", "--set", "training.use_reentrant=false")
    written = tmp_path / "facts.yaml"
    written.write_text(run("facts", project, *options, "--format", "yaml").out, encoding="utf-8")

    def affected(*arguments: object) -> set[str]:
        data = json.loads(run("check", *arguments, "--format", "json").out)
        return {finding["rule_id"] for finding in data["findings"] if finding["status"] == "affected"}

    found = affected(project, *options)
    assert "deepspeed/zero3-params-kept-in-backward" in found
    assert found <= affected(written)


def test_unread_keys_and_conflicts_are_shown(project: Path) -> None:
    (project / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "overlap_com": true}}',
        encoding="utf-8",
    )
    text = " ".join(run("facts", project).out.split())
    assert "did you mean zero_optimization.overlap_comm" in text
    assert "conflict: training.micro_batch_size" in text


def test_names_and_exit_codes(tmp_path: Path) -> None:
    ran = run("facts", "--names")
    assert ran.code == 0
    assert "training.zero_stage" in ran.out
    _, _, about = ran.out.partition("hardware.gpu (str)\n")
    known = about.partition("(int)")[0].replace(",", "").split()
    assert {"known:", "A100-80GB", "p4d.24xlarge", "MI300X"} <= set(known)
    assert max(map(len, ran.out.splitlines())) <= 80
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("facts", empty).code == 3
    broken = tmp_path / "ds.json"
    broken.write_text("{", encoding="utf-8")
    ran = run("facts", broken)
    assert ran.code == 4
    assert "not read" in ran.out


@pytest.mark.parametrize("complete", [True, False])
def test_variables_are_given_back_too(complete: bool, project: Path, tmp_path: Path) -> None:  # noqa: FBT001 (a table)
    given = tmp_path / "given.yaml"
    rest = "" if complete else "env_complete: false\n"
    values = {"TORCH_NCCL_AVOID_RECORD_STREAMS": "1", "NCCL_X": 'a "b": #c', "HF_TOKEN_KEY": ""}
    given.write_text(f"compatcheck: 1\nenv: {json.dumps(values)}\n{rest}", encoding="utf-8")
    written = tmp_path / "written.yaml"
    written.write_text(run("facts", project, "--training", given, "--format", "yaml").out, encoding="utf-8")

    def variables(*arguments: object) -> tuple[dict[str, str] | None, bool]:
        (subject,) = json.loads(run("facts", *arguments, "--format", "json").out)["subjects"]
        return subject["variables"], subject["variables_complete"]

    assert variables(project, "--training", given) == (values, complete)
    assert variables(written) == (values, complete)
    assert variables(project) == (None, False)


def test_declared_variables_decide_the_same_rules_when_given_back(project: Path, tmp_path: Path) -> None:
    (tmp_path / "job.env").write_text("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", encoding="utf-8")
    written = tmp_path / "facts.yaml"
    ran = run("facts", project, "--env-file", tmp_path / "job.env", "--format", "yaml")
    written.write_text(ran.out, encoding="utf-8")
    assert 'PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"' in ran.out
    needs = {
        need
        for finding in json.loads(run("check", written, "--format", "json").out)["findings"]
        for need in finding["needs"]
    }
    assert not [need for need in needs if need.startswith("env ")]


def test_whether_variables_are_complete_is_yes_or_no(tmp_path: Path) -> None:
    file = tmp_path / "facts.yaml"
    file.write_text("compatcheck: 1\nenv: {A: b}\nenv_complete: perhaps\n", encoding="utf-8")
    ran = run("facts", file)
    assert ran.code == 4
    assert "env_complete" in ran.out
