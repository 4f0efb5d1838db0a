"""`compatcheck facts`: what was understood, and that it can be given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_cli import run

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
    text = run("facts", project).out
    assert "did you mean zero_optimization.overlap_comm" in text
    assert "conflict: training.micro_batch_size" in text


def test_names_and_exit_codes(tmp_path: Path) -> None:
    ran = run("facts", "--names")
    assert ran.code == 0
    assert "training.zero_stage" in ran.out
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("facts", empty).code == 3
    broken = tmp_path / "ds.json"
    broken.write_text("{", encoding="utf-8")
    ran = run("facts", broken)
    assert ran.code == 4
    assert "not read" in ran.out
