"""`compatcheck env`: one installed environment, judged from metadata."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    root = tmp_path / "venv"
    site = root / "lib/python3.11/site-packages"
    for name, version in (("deepspeed", "0.16.4"), ("torch", "2.6.0"), ("transformers", "4.48.0")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (root / "bin").mkdir()
    (root / "pyvenv.cfg").write_text("version = 3.11.7\nhome = /usr/bin\n", encoding="utf-8")
    return root


def test_an_environment_alone_leaves_the_configuration_open(prefix: Path) -> None:
    ran = run("env", "--prefix", prefix, "--format", "json", "--select", RULE)
    data = json.loads(ran.out)
    assert ran.code == 0
    (finding,) = data["findings"]
    assert finding["status"] == "possible"
    assert {package["name"] for package in data["subjects"][0]["environment"]["packages"]} == {
        "deepspeed",
        "torch",
        "transformers",
    }


def test_settings_decide(prefix: Path) -> None:
    settings = ["training.zero_stage=3", "training.gradient_checkpointing=true", "training.use_reentrant=false"]
    options = [part for setting in settings for part in ("--set", setting)]
    model = ("--model", "llama-3-8b", "--set", "training.param_dtype=bf16", "--gpu", "8xH100-80GB")
    ran = run("env", "--prefix", prefix, "--select", RULE, *options, *model)
    assert ran.code == 1
    assert "0.16.8" in ran.out
    other = [part for setting in ["training.zero_stage=2", *settings[1:]] for part in ("--set", setting)]
    assert run("env", "--prefix", prefix, "--select", RULE, *other).code == 0
    assert run("env", "--prefix", prefix, *options, "--set", "training.zero_stage=2").code == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--prefix", "nowhere"], {2, 4}),
        (["--python", "nowhere"], {2, 4}),
        (["--model", "unheard-of-model"], {4}),
        (["--training", "missing.json"], {4}),
        (["--env-file", "missing.env"], {4}),
        (["--gpu", "8xQ9000"], {2}),
        (["--driver", "new"], {2}),
    ],
)
def test_inputs_that_are_not_there_are_told(prefix: Path, options: list[str], code: set[int]) -> None:
    given = options if {"--prefix", "--python"} & set(options) else ["--prefix", str(prefix), *options]
    ran = run("env", "--select", RULE, *given)
    assert ran.code in code, ran
    assert options[-1].removeprefix("8x") in ran.out + ran.err


def test_an_empty_environment_is_not_fine(tmp_path: Path) -> None:
    (tmp_path / "venv/lib/python3.11/site-packages").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("version = 3.11.7\nhome = /usr/bin\n", encoding="utf-8")
    assert run("env", "--prefix", tmp_path / "venv").code == 3


@pytest.mark.parametrize("form", ["text", "json", "markdown", "junit", "sarif", "github"])
def test_an_environment_without_a_training_stack_is_not_fine(prefix: Path, form: str) -> None:
    site = prefix / "lib/python3.11/site-packages"
    shutil.rmtree(site)
    info = site / "click-8.1.7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: click\nVersion: 8.1.7\n", encoding="utf-8")
    (prefix.parent / "requirements.txt").write_text("click==8.1.7\n", encoding="utf-8")
    files = ("check", prefix.parent / "requirements.txt")
    for command in (("env", "--prefix", prefix), files, (*files, "--prefix", prefix)):
        ran = run(*command, "--format", form)
        assert ran.code == 3, ran
        assert "no known problem" not in ran.out.lower()
        if form in {"text", "junit"}:
            assert "none of 1 package is of a training stack" in " ".join(ran.out.split())


def test_a_device_without_a_size_is_said(prefix: Path) -> None:
    out = " ".join(run("env", "--prefix", prefix, "--gpu", "8xH100").out.split())
    assert "H100 is taken for H100-80GB; there are also H100-94GB-NVL, H100-96GB: 79.6 GiB a device is assumed" in out
    assert "is taken for" not in run("env", "--prefix", prefix, "--gpu", "8xH100-80GB").out


def test_a_fact_without_its_group_is_told_the_whole(prefix: Path) -> None:
    ran = run("env", "--prefix", prefix, "--set", "zero_stage=3")
    assert ran.code == 2
    assert "did you mean 'training.zero_stage'?" in ran.err


def test_the_environment_of_the_project_is_found(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(prefix.parent)
    ran = run("env", "--select", RULE)
    assert "no environment is active: the nearest one here or above" in " ".join(ran.out.split())
    assert f"POSSIBLE (medium) {RULE}" in ran.out


def test_commands_that_do_not_exist_are_told_the_nearest() -> None:
    ran = run("chek")
    assert ran.code == 2
    assert "check" in ran.err
    assert run("--version").code == 0
    assert "check" in run("--help").out


def test_metadata_that_contradicts_its_directory_is_a_finding(tmp_path: Path) -> None:
    site = tmp_path / "v" / "lib" / "python3.11" / "site-packages"
    folder = site / "deepspeed-0.16.4.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.16.8\n\n")
    ran = run("env", "--prefix", str(tmp_path / "v"), "--select", "_stack/*")
    assert ran.code == 1
    assert "_stack/metadata-and-files-disagree" in ran.out
    assert "its directory says 0.16.4, its METADATA 0.16.8" in ran.out
