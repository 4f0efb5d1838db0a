"""docs/ci.md: its commands run and end as it says, its snippets are well formed, its table is that of the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from compatcheck.checking.policy import read_policy
from compatcheck.core import errors
from tests import ROOT

PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:<!-- exit (\d+) -->\n)?```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [(code, text) for code, name, text in BLOCKS if name == language]


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs a shell command in the project of the page."""
    project = tmp_path / "project"
    (project / "configs").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "requirements.txt").write_text("torch==2.5.1\ntransformers==4.48.0\ndeepspeed==0.16.4\n")
    (project / "configs/ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n')
    (project / "configs/args.yaml").write_text(
        "output_dir: out\ndeepspeed: ds.json\nbf16: true\nper_device_train_batch_size: 1\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n",
    )
    shutil.copy(ROOT / "fixtures/cases/openrlhf-llama3-70b/config.json", project / "configs")
    binaries = tmp_path / "environment/bin"
    packages = tmp_path / "environment/lib/python3.12/site-packages"
    binaries.mkdir(parents=True)
    (tmp_path / "environment/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    for name, version in (("torch", "2.5.1"), ("deepspeed", "0.16.4"), ("transformers", "4.48.0")):
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for name, arguments in (("compatcheck", "-m compatcheck.cli"), ("python", "")):
        script = binaries / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)

    def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "CONDA_PREFIX"}}
        return subprocess.run(
            ["sh", "-c", command],
            cwd=project,
            env={**inherited, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_table_of_exit_codes_is_that_of_the_code() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert told == {value for name, value in vars(errors).items() if name.startswith("EXIT_")}


@pytest.mark.parametrize(("code", "command"), blocks("sh"), ids=lambda text: text.split("\n")[0][:40])
def test_commands_end_as_the_page_says(shell, code, command) -> None:
    done = shell(command)
    assert str(done.returncode) == code, done.stdout + done.stderr


def test_reports_of_one_run_are_all_written(shell, tmp_path) -> None:
    shell(blocks("sh")[0][1])
    written = {path.name for path in (tmp_path / "project").glob("report.*")}
    assert written == {"report.json", "report.sarif", "report.xml", "report.md"}


def test_policy_of_the_page_works(shell, tmp_path) -> None:
    ((_, text),) = blocks("toml")
    path = tmp_path / "project/compatcheck.toml"
    path.write_text(text)
    policy = read_policy(str(path))
    assert policy is not None
    assert [run.name for run in policy.runs] == ["train"]
    done = shell("compatcheck check --strict --fail-on never --format json")
    summary = json.loads(done.stdout)["summary"]
    assert (summary["suppressed"], summary["policy"], summary["exit_code"]) == (2, "compatcheck.toml", 0), done.stderr
    done = shell('compatcheck env --python "$(command -v python)" --run train')
    assert "waived   deepspeed/zero3-params-kept-in-backward" in done.stdout


def test_hooks_of_the_page_exist() -> None:
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    told = [yaml.safe_load(text) for _, text in blocks("yaml") if "hooks:" in text]
    assert {hook["id"] for page in told for repo in page["repos"] for hook in repo["hooks"]} == hooks


def test_commands_of_the_workflow_run(shell, tmp_path) -> None:
    workflow = next(yaml.safe_load(text) for _, text in blocks("yaml") if "runs-on" in text and "pipx" in text)
    steps = workflow["jobs"]["compatcheck"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("run", "").startswith("compatcheck")]
    done = shell(command, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=requirements.txt,line=3,title=high deepspeed/zero3-params-kept")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").startswith("## compatcheck: ")
    uploaded = next(step["with"]["sarif_file"] for step in steps if "upload-sarif" in step.get("uses", ""))
    assert (tmp_path / "project" / uploaded).exists()


def test_inputs_of_the_action_exist() -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    workflow = next(yaml.safe_load(text) for _, text in blocks("yaml") if "OWNER/compatcheck@" in text)
    (step,) = [one for one in workflow["jobs"]["compatcheck"]["steps"] if "compatcheck@" in one["uses"]]
    assert set(step["with"]) <= set(inputs)


def test_commands_of_the_gitlab_job_run(shell, tmp_path) -> None:
    job = next(yaml.safe_load(text) for _, text in blocks("yaml") if "artifacts" in text)["compatcheck"]
    (command,) = [line for line in job["script"] if line.startswith("compatcheck")]
    assert shell(command).returncode == 1
    assert (tmp_path / "project" / job["artifacts"]["reports"]["junit"]).exists()


def test_command_of_the_container_build_runs(shell) -> None:
    (_, text), _ = blocks("dockerfile")
    (command,) = re.findall(r"^RUN \S*/(compatcheck env .*)$", text, re.MULTILINE)
    done = shell(command)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "127.5 GiB per rank" in done.stdout
