"""What is printed as the next command runs, and makes more of the check."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from compatcheck.checking.next_step import ANY_PYTHON, MAX_PYTHON, find_configurations
from compatcheck.checking.request import Request
from tests.cli.run_cli import Ran, run
from tests.unit.collectors.test_reports import NVIDIA_SMI

DS = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}'
TRAIN = (
    "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nbf16: true\nper_device_train_batch_size: 2\n"
    "gradient_accumulation_steps: 8\ngradient_checkpointing: true\nmax_length: 8192\ndeepspeed: ds.json\n"
)
SCRIPT = (
    "from trl import SFTConfig, SFTTrainer\n"
    'SFTTrainer(model="Qwen/Qwen2.5-7B-Instruct", args=SFTConfig(output_dir="o", bf16=True, max_length=8192)).train()\n'
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    install(
        tmp_path / ".venv", torch="2.6.0", transformers="4.51.3", trl="0.17.0", deepspeed="0.16.4", accelerate="1.4.0"
    )
    (tmp_path / "package.json").write_text('{"name": "web", "dependencies": {"torch": "1"}}', "utf-8")
    (tmp_path / "tool.py").write_text("import os\n", "utf-8")
    return tmp_path


def install(prefix: Path, **versions: str) -> None:
    """Write an environment."""
    for name, version in versions.items():
        info = prefix / f"lib/python3.11/site-packages/{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    (prefix / "bin").mkdir()
    (prefix / "bin/python").write_bytes(b"\x7fELF")
    (prefix / "pyvenv.cfg").write_text("version = 3.11.7\nhome = /usr/bin\n", "utf-8")


def commands(ran: Ran) -> list[str]:
    return [line.strip() for line in ran.out.splitlines() if line.strip().startswith("compatcheck ")]


def test_one_configuration_says_it_in_the_singular(project: Path) -> None:
    (project / "train.yaml").write_text(TRAIN, "utf-8")
    assert "next     train.yaml here says what is trained" in run("env", "--gpu", "8xH100-80GB").out


def test_configurations_beside_an_environment_are_named(project: Path) -> None:
    (project / "ds.json").write_text(DS, "utf-8")
    (project / "train.yaml").write_text(TRAIN, "utf-8")
    ran = run("env", "--gpu", "8xH100-80GB")
    assert "next     ds.json and train.yaml here say what is trained" in ran.out
    (command,) = commands(ran)
    assert command == "compatcheck env --gpu 8xH100-80GB --training ds.json --training train.yaml"
    again = run(*shlex.split(command)[1:])
    assert again.code != 4
    assert commands(again) == []
    facts = json.loads(run(*shlex.split(command)[1:], "--format", "json").out)["subjects"][0]["facts"]
    assert ("training.zero_stage", 3) in [(fact["name"], fact["value"]) for fact in facts]


RUN = "compatcheck env --training ds.json --training train.yaml"
"""A script beside a configuration says nothing about which files that takes."""


def test_runs_that_exclude_each_other_have_a_command_each(project: Path) -> None:
    for name, text in (("ds.json", DS), ("train.yaml", TRAIN), ("sft.py", SCRIPT)):
        (project / name).write_text(text, "utf-8")
    ran = run("env")
    assert "ds.json, sft.py and train.yaml here say what is trained" in ran.out
    assert commands(ran) == ["compatcheck env --training sft.py", RUN]
    assert {run(*shlex.split(command)[1:]).code for command in commands(ran)} <= {0, 1}


def test_nothing_is_proposed_where_nothing_lies(project: Path) -> None:
    assert (project / "package.json").exists()
    assert commands(run("env")) == []


def test_the_runs_of_a_policy_are_proposed(project: Path) -> None:
    (project / "train.yaml").write_text(TRAIN.replace("deepspeed: ds.json\n", ""), "utf-8")
    (project / "compatcheck.toml").write_text('[runs.sft]\ntraining = "train.yaml"\n', "utf-8")
    assert commands(run("env")) == ["compatcheck env --run sft"]
    assert commands(run("env", "--run", "sft")) == ["compatcheck env --gpu 8xH100-80GB --run sft"]
    assert commands(run("env", "--run", "sft", "--gpu", "8xH100-80GB")) == []


@pytest.mark.parametrize("name", ["sft.py", "train.yaml"])
def test_a_configuration_alone_is_told_the_packages_it_lacks(project: Path, name: str) -> None:
    (project / "ds.json").write_text(DS, "utf-8")
    (project / "train.yaml").write_text(TRAIN, "utf-8")
    (project / "sft.py").write_text(SCRIPT, "utf-8")
    ran = run("check", name)
    assert ran.code == 3
    said = " ".join(ran.out.split())
    assert "no release is known of " in said
    assert "transformers" in said.partition("no release is known of ")[2]
    assert commands(ran) == [
        f"compatcheck env --training {name}",
        f"compatcheck check {name} --python .venv/bin/python",
    ]
    for command in commands(ran):
        assert run(*shlex.split(command)[1:]).code in {0, 1}
    assert commands(run("check", "."))[-1] == "compatcheck check . --python .venv/bin/python"


def test_an_environment_without_a_stack_asks_for_the_one_that_trains(project: Path) -> None:
    install(project / "tools", click="8.1.7")
    (project / "train.yaml").write_text(TRAIN.replace("deepspeed: ds.json\n", ""), "utf-8")
    ran = run("env", "--prefix", "tools")
    assert ran.code == 3
    assert commands(ran) == [f"compatcheck env --python {ANY_PYTHON} --training train.yaml"]
    ran = run("env", "--prefix", "tools", "--training", "train.yaml")
    assert ran.code == 3
    assert commands(ran) == [f"compatcheck env --python {ANY_PYTHON} --training train.yaml"]


def test_only_the_head_of_a_file_is_searched(tmp_path: Path) -> None:
    word = '{"zero_optimization": {"stage": 3}'
    (tmp_path / "ds.json").write_text(word + "}")
    (tmp_path / "data.json").write_text('{"rows": "' + "x" * (1 << 16) + '", "zero_optimization": {"stage": 3}}')
    found = find_configurations(str(tmp_path), Request())
    assert [item.path for item in found] == [str(tmp_path / "ds.json")]


def test_files_of_a_library_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DS)
    for number in range(MAX_PYTHON):
        (tmp_path / f"sft{number}.py").write_text(SCRIPT)
    assert len({item.path for item in find_configurations(str(tmp_path), Request())}) == 1 + MAX_PYTHON
    (tmp_path / "more.py").write_text(SCRIPT)
    assert [item.path for item in find_configurations(str(tmp_path), Request())] == [str(tmp_path / "ds.json")]


def test_a_pipe_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "train.yaml")
    assert commands(run("env")) == []


def test_what_was_given_and_is_not_there_stands_in_no_command(project: Path) -> None:
    (project / "train.yaml").write_text(TRAIN, "utf-8")
    install(project / "tools", click="8.1.7")
    ran = run("env", "--prefix", "tools", "--training", "nope.yaml", "--training", "train.yaml", "--model", "no/model")
    assert commands(ran) == [f"compatcheck env --python {ANY_PYTHON} --training train.yaml"]
    (project / "sft.py").write_text(SCRIPT, "utf-8")
    ran = run("check", "sft.py", "nope.txt", "--driver", "550.54.15")
    assert commands(ran) == [
        "compatcheck env --driver 550.54.15 --training sft.py",
        "compatcheck check sft.py --python .venv/bin/python --driver 550.54.15",
    ]


def test_a_report_of_a_machine_alone_is_named_where_packages_are(project: Path) -> None:
    (project / "smi.txt").write_text(NVIDIA_SMI, "utf-8")
    printed = commands(run("check", "smi.txt"))
    assert printed == [f"compatcheck {words} --gpu 2xA100-80GB --driver 550.54.15" for words in ("env", "check .")]
    assert run(*shlex.split(printed[0])[1:]).code in {0, 1}
