"""Directories: which files make a subject, and which are named as not read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.checking.input_files import read_named_file
from compatcheck.cli.__main__ import main
from compatcheck.core.files import LOCAL
from compatcheck.core.selection import Selection
from tests import ROOT

if TYPE_CHECKING:
    from compatcheck.core.source import Skipped

CONFIGS = ROOT / "fixtures/configs"


def check(*arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["compatcheck", "check", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    code = caught.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().out


def check_json(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(check(str(path), "--format", "json", monkeypatch=monkeypatch, capsys=capsys)[1])
    return report


def names(report: dict[str, Any]) -> list[str]:
    """Name the files of each subject, without the directories above the project."""
    found = []
    for subject in report["subjects"]:
        parts = [part.rpartition("/")[2] for part in subject["id"].rpartition(": ")[2].split(" + ")]
        found.append(" + ".join(parts))
    return sorted(found)


def test_a_project_pairs_each_run_with_one_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = check_json(CONFIGS / "project", monkeypatch, capsys)
    assert names(report) == [
        "requirements-docs.txt",
        "requirements.txt + config_a.yaml",
        "requirements.txt + config_b.yaml",
        "requirements.txt + config_c.yaml",
        "requirements.txt + config_d.yaml",
        *(f"requirements.txt + tune{number}.yaml" for number in range(1, 6)),
        "requirements.txt + zero3.yaml",
    ]
    assert report["skipped"] == []


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("git+https://github.com/huggingface/trl.git@v0.15.0#egg=trl", "trl"),
        ("https://host.example/files/trl-0.15.0.tar.gz", "trl"),
        ("./wheels/trl-0.15.0-py3-none-any.whl", "trl"),
        ("git+https://github.com/huggingface/trl.git@v0.15.0", None),
    ],
)
def test_half_a_list_of_links_is_no_prose(line: str, package: str | None, tmp_path: Path) -> None:
    path = tmp_path / "base.txt"
    path.write_text(f"torch==2.6.0\n{line}\n")
    skipped: list[Skipped] = []
    (found,) = read_named_file(str(path), LOCAL, skipped, Selection(), None)
    assert found.environment is not None
    known, unread = set(found.environment.packages), [*skipped, *found.environment.skipped]
    assert (known == {"torch", package} and not unread) if package else (known == {"torch"} and unread)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("requirements/train.txt", "deepspeed==0.16.4\n"),
        ("requirements/gpu/train.txt", "deepspeed==0.16.4\n"),
        ("docker/requirements.txt", "deepspeed==0.16.4\n"),
        ("docker/Dockerfile", "FROM python:3.11\nRUN pip install deepspeed==0.16.4\n"),
    ],
)
def test_a_folder_of_lists_is_the_project_s_around_it(
    place: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(content)
    (tmp_path / "scripts").mkdir()
    for folder in (tmp_path, tmp_path / "scripts"):
        (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    report = check_json(tmp_path, monkeypatch, capsys)
    assert names(report) == [f"{Path(place).name} + ds.json"] * 2


def test_a_lock_stands_for_the_requirements_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed>=0.15\n")
    (tmp_path / "uv.lock").write_text(
        'version = 1\nrequires-python = ">=3.10"\n\n'
        '[[package]]\nname = "project"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "deepspeed" }]\n\n'
        '[[package]]\nname = "deepspeed"\nversion = "0.16.8"\nsource = { registry = "https://example.org/simple" }\n'
    )
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": 8}')
    assert names(check_json(tmp_path, monkeypatch, capsys)) == ["requirements.txt", "uv.lock + ds.json"]


def test_a_file_named_from_the_directory_a_program_starts_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "example/configs").mkdir(parents=True)
    (tmp_path / "example/configs/ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 8}')
    (tmp_path / "example/configs/accelerate.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  deepspeed_config_file: configs/ds.json\n"
    )
    report = check_json(tmp_path, monkeypatch, capsys)
    assert report["skipped"] == []
    (subject,) = report["subjects"]
    stages = [fact["value"] for fact in subject["facts"] if fact["name"] == "training.zero_stage"]
    assert stages == [2]


def test_an_environment_without_requirements_is_no_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.8\n")
    report = check_json(tmp_path, monkeypatch, capsys)
    assert names(report) == ["requirements.txt"]
    assert [entry["reason"] for entry in report["skipped"]] == ["states no requirements"]


def test_many_subjects_are_folded_by_rule(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = check(str(CONFIGS / "project"), monkeypatch=monkeypatch, capsys=capsys)
    assert "\n\n11 configurations and environments; -v reports them one by one\n" in text
    heads = [line for line in text.splitlines() if line.startswith(("POSSIBLE", "ADVICE", "MEDIUM", "HIGH", "LOW"))]
    assert len(heads) == len(set(heads))


def test_files_that_are_not_read_are_folded_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.8\n")
    for number in range(5):
        (tmp_path / f"{number}.yaml").write_text((CONFIGS / "other/llamafactory-v1.yaml").read_text())
    _, text = check(str(tmp_path), monkeypatch=monkeypatch, capsys=capsys)
    assert "the same for 4 others" in text
    _, long = check(str(tmp_path), "-v", monkeypatch=monkeypatch, capsys=capsys)
    assert long.count("configuration of LLaMA-Factory v1") == 1 + 5  # the first lines name one


GARBAGE = {
    "a.json": b"\x00\xff\x12",
    "trunc.json": b'{"zero_optimization": {"stage": 3',
    "config.json": b'{"model_type": 5}',
    "list.json": b"[1, 2]",
    "loop.yaml": b"a: &a [*a]\n",
    "tag.yaml": b'x: !!python/object/apply:os.system ["true"]\n',
    "acc.json": b'{"fsdp_config": 5, "compute_environment": "X", "distributed_type": ["FSDP"], "deepspeed_config": []}',
    "ds.json": b'{"zero_optimization": [1], "bf16": 7, "optimizer": "Adam", "train_batch_size": {"a": 1}}',
    "tr.yaml": b"learning_rate: {}\noutput_dir: 5\nfsdp_config: [1]\ndeepspeed: 7\noptim: [1]\nfsdp: 3\nbf16: maybe\n",
    "requirements.txt": b"torch==\n===\n",
    "pyproject.toml": b"[project\n",
    "facts.yaml": b"compatcheck: 1\ntraining: 5\n",
    "nan.json": b'{"train_batch_size": 1e400, "zero_optimization": {"stage": NaN}}',
    "deep.json": b'{"zero_optimization":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "model/config.json": b'{"model_type": "llama", "hidden_size": "x", "num_hidden_layers": -1}',
    "ok/ds.json": b'{"zero_optimization": {"stage": 3}, "train_batch_size": 8}',
    "ok/requirements.txt": b"deepspeed==0.16.4\n",
}


def test_garbage_is_reported_and_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in GARBAGE.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    (tmp_path / "dangling.json").symlink_to("nowhere.json")
    (tmp_path / "around").symlink_to(".")
    code, text = check(str(tmp_path), "--format", "json", monkeypatch=monkeypatch, capsys=capsys)
    assert code in {0, 1}
    report = json.loads(text)
    assert "requirements.txt + ds.json" in names(report)
    assert any(finding["rule_id"] == "deepspeed/zero3-params-kept-in-backward" for finding in report["findings"])
    assert {entry["source"].rpartition("/")[2].partition(":")[0].partition(" ")[0] for entry in report["skipped"]} >= {
        "trunc.json",
        "deep.json",
        "facts.yaml",
        "pyproject.toml",
        "nan.json",
        "tr.yaml",
    }
    assert check(str(tmp_path), "--strict", monkeypatch=monkeypatch, capsys=capsys)[0] in {1, 4}


def test_a_named_file_is_the_same_however_the_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": 8}')
    (tmp_path / "project").mkdir()
    (tmp_path / "project/accelerate.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    monkeypatch.chdir(tmp_path / "project")
    for argument in (".", str(tmp_path / "project")):
        execute_check = check_json(Path(argument), monkeypatch, capsys)
        assert [entry["reason"].startswith("names 'ds.json'") for entry in execute_check["skipped"]] == [True]


def test_an_empty_file_that_is_named_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ds.json").write_text("\n")
    (tmp_path / "accelerate.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    entries = check_json(tmp_path, monkeypatch, capsys)["skipped"]
    assert {entry["source"].rpartition("/")[2].partition(":")[0] for entry in entries} == {"ds.json", "accelerate.yaml"}
    assert any("is empty" in entry["reason"] for entry in entries)


UV_LOCK = """version = 1
[[package]]
name = "x"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "torch" }]
[package.optional-dependencies]
train = [{ name = "deepspeed" }]
[[package]]
name = "torch"
version = "2.6.0"
[[package]]
name = "deepspeed"
version = "0.16.5"
"""
PROJECT = '[project]\nname = "x"\nversion = "1"\n[project.optional-dependencies]\ntrain = ["deepspeed==0.16.5"]\n'


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("uv.lock", UV_LOCK, "0.16.4"),
        ("pyproject.toml", PROJECT, "0.16.4"),
        ("requirements.txt", "deepspeed>=0.15\n", "0.16.4"),
        ("requirements.txt", "deepspeed>=0.17\n", ">=0.17"),
        ("requirements.txt", "deepspeed==0.16.5\n", "0.16.5"),
    ],
)
def test_what_a_file_leaves_open_is_settled_by_what_is_installed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    version: str,
) -> None:
    info = tmp_path / "venv/lib/python3.11/site-packages/deepspeed-0.16.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.16.4\n")
    (tmp_path / "venv/pyvenv.cfg").write_text("version = 3.11.7\nhome = /usr/bin\n")
    (tmp_path / name).write_text(text)
    arguments = (str(tmp_path / name), "--prefix", str(tmp_path / "venv"), "--format", "json")
    _, out = check(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    (subject,) = json.loads(out)["subjects"]
    (package,) = [entry for entry in subject["environment"]["packages"] if entry["name"] == "deepspeed"]
    assert (package["version"], package["optional"]) == (version, False)


STACK = "torch==2.6.0\ntransformers==4.50.0\naccelerate==1.5.0\ndeepspeed==0.16.4\n"
TRAINER = "bf16: true\nper_device_train_batch_size: 1\noutput_dir: o\ngradient_checkpointing: true\n"


@pytest.mark.parametrize(
    "files",
    [
        {"requirements.txt": STACK, "train.yaml": f"{TRAINER}deepspeed: ds.json\n"},
        {"requirements.txt": STACK, "train.yaml": f"{TRAINER}deepspeed: ds.json\n", "ds.json": '{"zero_optim'},
        {"requirements.txt": f"-r base.txt\n{STACK}", "train.yaml": TRAINER},
        {
            "requirements.txt": STACK,
            "train.yaml": f"{TRAINER}  deepspeed: [ds.json\n",
            "compatcheck.toml": '[runs.train]\npaths = ["requirements.txt"]\ntraining = ["train.yaml"]\n',
        },
        {"requirements.txt": STACK, "run.sh": "source ./common.sh\naccelerate launch train.py --bf16 $MORE\n"},
    ],
)
@pytest.mark.parametrize("command", [["check", "."], ["check", "--hook"], ["fix", ".", "--offline"], ["estimate", "."]])
def test_what_a_run_names_and_nobody_could_read_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, str],
    command: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    touched = list(files) if "--hook" in command else []
    monkeypatch.setattr(sys, "argv", ["compatcheck", *command, *touched])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert caught.value.code == 4
    if command[0] == "check":
        assert out.startswith("NOT CHECKED WHOLE: ")
    elif command[0] == "fix":
        assert out.startswith("compatcheck: not checked whole: not read: ")
    else:
        assert "not read: " in err


def test_an_extra_that_is_not_selected_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["torch==2.6.0"]\n'
    project += '[project.optional-dependencies]\ntrain = ["deepspeed==0.16.4"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    said = "extra train not selected: deepspeed ==0.16.4 may be there; --extra train"
    _, out = check(".", monkeypatch=monkeypatch, capsys=capsys)
    assert said.replace("==", "") in out.split("\n\n")[0].replace("==", "")
    report = check_json(tmp_path, monkeypatch, capsys)
    assert len(report["summary"]["open"]) == 1
    _, out = check(".", "--extra", "train", monkeypatch=monkeypatch, capsys=capsys)
    assert "not selected" not in out


def test_an_extra_that_decides_the_fit_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["torch==2.6.0"]\n'
    project += '[project.optional-dependencies]\ntrain = ["deepspeed==0.16.4"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    zero = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}
    (tmp_path / "ds.json").write_text(json.dumps(zero))
    settings = ("training.sequence_length=2048", "training.gradient_checkpointing=true", "training.use_reentrant=false")
    arguments = [".", "--model", "llama-3-8b", "--gpu", "8xV100-32GB", *(f"--set={one}" for one in settings)]
    code, out = check(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "may not fit: needs 22.4 GiB" in out) == (0, True)
    said = "with deepspeed/zero3-params-kept-in-backward, if deepspeed comes with --extra train"
    assert said in " ".join(out.split())
    code, out = check(*arguments, "--extra", "train", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, "does not fit: needs 3" in out) == (1, True)


TRAINS = (
    'from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments("o", bf16=True)).train()\n'
)
LAUNCH = "torchrun --nproc_per_node 8 sft.py --bf16 True --per_device_train_batch_size 4 --output_dir o\n"


@pytest.mark.parametrize(
    ("written", "subjects"),
    [
        ({"sft.py": TRAINS}, ["requirements.txt + sft.py"]),
        ({"sft.py": TRAINS, "run.sh": LAUNCH}, ["requirements.txt + run.sh"]),
        ({"run": f"#!/usr/bin/env bash\n{LAUNCH}"}, ["requirements.txt + run"]),
        ({"train.job": f"#! /bin/sh\n{LAUNCH}"}, ["requirements.txt + train.job"]),
        ({"run": f"#!/usr/bin/env python\n{LAUNCH}"}, ["requirements.txt"]),
        ({"loops.py": "from transformers import Trainer\nclass Mine(Trainer):\n    pass\n"}, ["requirements.txt"]),
        ({"test_sft.py": TRAINS}, ["requirements.txt"]),
    ],
)
def test_a_walk_reads_the_scripts_that_train(
    written: dict[str, str],
    subjects: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\n")
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    assert names(check_json(tmp_path, monkeypatch, capsys)) == subjects


def test_a_directory_of_many_training_scripts_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\n")
    for number in range(12):
        (tmp_path / f"example{number}.py").write_text(TRAINS)
    report = check_json(tmp_path, monkeypatch, capsys)
    assert names(report) == ["requirements.txt"]
    (entry,) = report["skipped"]
    assert entry["reason"] == "holds 12 training scripts that no launch script here starts"


UNREADABLE = b"\xf5\x9b\x80"


@pytest.mark.parametrize("kind", ["garbage", "a pipe", "a link to nothing"])
@pytest.mark.parametrize("name", ["train.yaml", "ds_config.json", "sft.toml", "train.py", "run.sh", "reqs.txt"])
def test_what_is_named_like_an_input_and_cannot_be_read_is_said(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\n")
    if kind == "garbage":
        (tmp_path / name).write_bytes(UNREADABLE)
    elif kind == "a pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/nonexistent")
    for option, code in (("--fail-unread", 4), ("--no-fail-unread", 0)):
        found, out = check(str(tmp_path), "--format", "json", option, monkeypatch=monkeypatch, capsys=capsys)
        assert (found, len(json.loads(out)["skipped"])) == (code, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.json", '{"a": 1}\n{"a": 2}\n'),
        ("tokenizer_config.json", "{"),
        ("values.yaml", "{{ a }}: ["),
        ("deps.txt", "libfoo\nlibbar\n"),
        ("LICENSE", "#!/bin/bash\n"),
        ("README.md", "torchrun train.py\n"),
        ("train.py", "def train(): ...\n"),
        ("setup.cfg", "[flake8]\nignore = E501\n"),
    ],
)
def test_what_is_something_else_is_passed_over(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\n")
    (tmp_path / name).write_text(text)
    report = check_json(tmp_path, monkeypatch, capsys)
    assert (names(report), report["skipped"]) == (["requirements.txt"], [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.cfg", "[options]\ninstall_requires =\n    torch==2.8.0\n"),
        ("setup.cfg", "[options]\ninstall-requires =\n    torch==2.8.0\n"),
        *((name, "torch==2.8.0\n") for name in ("reqs.txt", "gpu.reqs", "deps.txt", "requirements/gpu/base.txt")),
        ("requirements-dev", "torch==2.8.0\n"),
        ("environment-gpu.yml", "name: x\ndependencies:\n  - pytorch=2.8.0\n"),
        ("Dockerfile.cuda", "FROM ubuntu\nRUN pip install torch==2.8.0\n"),
        ("Containerfile", "FROM ubuntu\nRUN pip install torch==2.8.0\n"),
    ],
)
def test_a_list_of_packages_has_many_names(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    (subject,) = check_json(tmp_path, monkeypatch, capsys)["subjects"]
    assert subject["id"].endswith(name)
