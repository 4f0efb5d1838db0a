"""Extras, groups, a Python, a stage and a script's arguments: what is chosen of what files offer, by option and in a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import run

FLAGSHIP = "deepspeed/zero3-params-kept-in-backward"
LOCK = """\
version = 1
requires-python = ">=3.11"
[[package]]
name = "demo"
version = "0.1.0"
source = { virtual = "." }
[package.optional-dependencies]
train = [{ name = "deepspeed" }]
[package.dev-dependencies]
bench = [{ name = "deepspeed" }]
[[package]]
name = "deepspeed"
version = "0.16.4"
source = { registry = "https://index.example/simple" }
"""
PROJECT = """\
[project]
name = "demo"
[project.optional-dependencies]
train = ["deepspeed==0.16.4"]
[dependency-groups]
bench = ["deepspeed==0.16.4"]
"""
PYLOCK = """\
lock-version = "1.0"
extras = ["train"]
dependency-groups = ["bench"]
[[packages]]
name = "deepspeed"
version = "0.16.4"
marker = "'train' in extras or 'bench' in dependency_groups"
"""
POETRY = """\
[[package]]
name = "deepspeed"
version = "0.16.4"
optional = true
python-versions = "*"
groups = ["main", "bench"]
markers = {main = "extra == 'train'"}
[extras]
train = ["deepspeed"]
[metadata]
lock-version = "2.1"
python-versions = "*"
"""
PDM = """\
[metadata]
groups = ["default", "train", "bench"]
strategy = ["inherit_metadata"]
lock_version = "4.5.0"
[[package]]
name = "deepspeed"
version = "0.16.4"
groups = ["train", "bench"]
"""
PIPFILE = '{"_meta": {"pipfile-spec": 6}, "default": {}, "bench": {"deepspeed": {"version": "==0.16.4"}}}'
SETUP = "from setuptools import setup\nsetup(extras_require={'train': ['deepspeed==0.16.4']})\n"
FACTS = "compatcheck: 1\ntraining: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\n"
INPUTS = {
    "uv.lock": LOCK,
    "pyproject.toml": PROJECT,
    "pylock.toml": PYLOCK,
    "poetry.lock": POETRY,
    "pdm.lock": PDM,
    "Pipfile.lock": PIPFILE,
    "setup.py": SETUP,
}
"""Files in which deepspeed comes with the extra ``train`` or the group ``bench``, as far as their kind has them."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "facts.yaml").write_text(FACTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(*arguments: object) -> dict[str, Any]:
    ran = run("check", *arguments, "--format", "json")
    assert ran.out, ran.err
    return json.loads(ran.out)


def status(*arguments: object) -> str | None:
    findings = report(*arguments, "facts.yaml", "--model", "llama-3-70b")["findings"]
    return next((finding["status"] for finding in findings if finding["rule_id"] == FLAGSHIP), None)


@pytest.mark.parametrize("name", INPUTS)
def test_what_nobody_selected_is_possible_and_what_is_selected_is_there(name: str) -> None:
    Path(name).write_text(INPUTS[name])
    assert status(name) == "possible"
    if name != "Pipfile.lock":
        assert status(name, "--extra", "Train") == "affected"
        assert status(name, "--all-extras") == "affected"
    if name != "setup.py":
        assert status(name, "--group", "bench") == "affected"


def test_the_finding_names_the_option_that_decides_it() -> None:
    Path("uv.lock").write_text(LOCK)
    ran = run("check", "uv.lock", "facts.yaml", "--model", "llama-3-70b", "-v")
    assert "if       deepspeed (comes with --extra train or --group bench)" in ran.out
    assert "deepspeed 0.16.4 may not be installed" in ran.out
    packages = report("uv.lock")["subjects"][0]["environment"]["packages"]
    assert [(package["name"], package.get("optional")) for package in packages] == [("deepspeed", True)]
    assert "deepspeed" not in run("facts", "uv.lock", "--format", "yaml").out


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--extra", "trian"), "--extra trian: no input has such an extra", "did you mean 'train'?"),
        (("--extra", "other"), "--extra other: no input has such an extra", "extras: train"),
        (("--group", "train"), "--group train: no input has such a group", "it is an extra: write --extra train"),
        (("--python-version", "snake"), "'snake' is no version of Python", "3.11"),
        (("--script-args", "'open"), "no closing quotation", "close the quote"),
        (("--script-args", "8"), "--script-args: no launch script is named", "name the script itself"),
        (("--stage", "train"), "--stage train: no input is a Dockerfile", "name the Dockerfile"),
    ],
)
def test_what_is_written_wrong_is_said(options: tuple[str, ...], message: str, hint: str) -> None:
    Path("uv.lock").write_text(LOCK)
    ran = run("check", "uv.lock", *options)
    assert ran.code == 2
    assert message in ran.err
    assert hint in ran.err


def test_an_extra_of_one_of_several_inputs_is_enough() -> None:
    Path("uv.lock").write_text(LOCK)
    Path("requirements.txt").write_text("torch==2.6.0\n")
    assert run("check", "requirements.txt", "--extra", "train").code == 2
    assert run("check", "requirements.txt", "uv.lock", "--extra", "train").code == 0
    assert run("diff", "requirements.txt", "uv.lock", "--extra", "train").code == 0
    assert run("diff", "requirements.txt", "uv.lock", "--extra", "tarin").code == 2


def test_a_run_of_the_policy_selects_and_the_command_line_wins() -> None:
    Path("uv.lock").write_text(LOCK)
    Path("compatcheck.toml").write_text(
        '[runs.train]\nlock = "uv.lock"\ntraining = "facts.yaml"\nmodel = "llama-3-70b"\nextras = ["train"]\n'
        '[runs.every]\nlock = "uv.lock"\ntraining = "facts.yaml"\nmodel = "llama-3-70b"\nall-extras = true\n'
        '[runs.bench]\nlock = "uv.lock"\ntraining = "facts.yaml"\nmodel = "llama-3-70b"\ngroups = ["bench"]\n'
        '[runs.bare]\nlock = "uv.lock"\ntraining = "facts.yaml"\nmodel = "llama-3-70b"\n'
    )
    found = {
        finding["subject"].partition(":")[0]: finding["status"]
        for finding in report()["findings"]
        if finding["rule_id"] == FLAGSHIP
    }
    assert found == {"train": "affected", "every": "affected", "bench": "affected", "bare": "possible"}
    ran = run("check", "--run", "train", "--extra", "nope")
    assert (ran.code, "--extra nope: no input has such an extra" in ran.err) == (2, True)
    Path("compatcheck.toml").write_text('[runs.train]\nlock = "uv.lock"\nall-extras = "yes"\n')
    assert "true or false" in run("check").err


def test_the_python_chooses_what_a_marker_asks_for() -> None:
    Path("requirements.txt").write_text(
        "deepspeed==0.16.4; python_version < '3.12'\ndeepspeed==0.17.5; python_version >= '3.12'\n"
    )
    assert status("requirements.txt") == "possible"
    assert status("requirements.txt", "--python-version", "3.11") == "affected"
    assert status("requirements.txt", "--python-version", "3.12.4") is None
    subject = report("requirements.txt", "--python-version", "3.11")["subjects"][0]
    assert subject["environment"]["python"] == "3.11"


def test_the_stage_that_is_built_is_chosen_by_name_or_number() -> None:
    Path("Dockerfile").write_text(
        "FROM python:3.11 AS train\nRUN pip install deepspeed==0.16.4\nFROM python:3.11 AS serve\nRUN pip install vllm==0.8.5\n"
    )
    assert status("Dockerfile") is None
    assert status("Dockerfile", "--stage", "Train") == "affected"
    assert status("Dockerfile", "--stage", "0") == "affected"
    ran = run("check", "Dockerfile", "--stage", "trian")
    assert ran.code == 2
    assert "has no stage 'trian'" in ran.out + ran.err
    assert "stages: train, serve" in ran.out + ran.err
    assert run("check", ".", "--stage", "trian").code == 2
    Path("other").mkdir()
    Path("other/Dockerfile").write_text("FROM python:3.11 AS other\nRUN pip install vllm==0.8.5\n")
    assert status(".", "--stage", "train") == "affected"


def test_a_script_is_read_with_the_arguments_it_is_started_with() -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    Path("train.sh").write_text(
        "torchrun --nproc_per_node=$1 train.py --model_name_or_path $2 --deepspeed ds.json --output_dir out "
        '--per_device_train_batch_size "${3:-2}"\n'
    )
    facts = run("facts", "train.sh", "--script-args", "8 'me/my model' 4").out
    assert "hardware.gpus_per_node = 8" in facts
    assert "training.micro_batch_size = 4" in facts
    assert "hardware.gpus_per_node = 8" not in run("facts", "train.sh").out
    assert (
        "training.micro_batch_size = 4"
        in run("facts", "--training", "train.sh", "--script-args", "8 m 4", "ds.json").out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "requirements.txt", "--environment", "nosuch"), "--environment nosuch: no image is named"),
        (("facts", "--prefix", "venv", "--environment", "nosuch"), "--environment nosuch: no image is named"),
        (("diff", "requirements.txt", "requirements.txt", "--environment", "nosuch"), "no image is named"),
        (("facts", "--prefix", "venv", "--extra", "nosuch"), "--extra nosuch: no file is named"),
        (("facts", "--prefix", "venv", "--group", "nosuch"), "--group nosuch: no file is named"),
        (("facts", "--prefix", "venv", "--all-extras"), "--all-extras: no file is named"),
        (("facts", "--prefix", "venv", "--stage", "nosuch"), "--stage nosuch: no file is named"),
        (("facts", "--prefix", "venv", "--python-version", "3.9"), "--python-version 3.9: no file is named"),
        (("facts", "--prefix", "venv", "--script-args", "8"), "--script-args: no file is named"),
        (("diff", "requirements.txt", "venv", "--extra", "nosuch"), "--extra nosuch: no input has such an extra"),
    ],
)
def test_what_is_chosen_of_an_input_that_is_not_named_is_said(arguments: tuple[str, ...], message: str) -> None:
    Path("requirements.txt").write_text("torch==2.9.0\n")
    Path("venv/lib/python3.11/site-packages").mkdir(parents=True)
    Path("venv/pyvenv.cfg").write_text("version = 3.11.7\n")
    ran = run(*arguments)
    assert (ran.code, message in ran.err) == (2, True), ran.err
