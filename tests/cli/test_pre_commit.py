"""The hooks under the real pre-commit, on a repository that holds the DeepSpeed incident; offline once installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("pre_commit")
pytestmark = pytest.mark.slow


HOOKS = ("compatcheck", "compatcheck-env", "compatcheck-rules")

FILES = {
    "requirements.txt": "torch==2.5.1\ntransformers==4.48.0\ndeepspeed==0.16.4\n",
    "configs/ds.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n',
    "configs/args.yaml": "output_dir: out\ndeepspeed: ds.json\nbf16: true\nper_device_train_batch_size: 1\n"
    "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n",
    "app.json": '{"name": "web", "port": 3}\n',
    "notes.yaml": "- a list\n",
    "rules/_tables/anything.yaml": "not: a rule\n",
}


class Repository:
    """A repository with the three hooks installed, and an environment for the system hook."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "project"
        self.directory.mkdir()
        self.variables = {
            **os.environ,
            "PRE_COMMIT_HOME": str(directory / "store"),
            "PATH": f"{self.fake_environment(directory)}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(directory / "environment"),
            "GIT_AUTHOR_NAME": "t",
            "GIT_AUTHOR_EMAIL": "t@example.org",
            "GIT_COMMITTER_NAME": "t",
            "GIT_COMMITTER_EMAIL": "t@example.org",
        }
        for name in ("PYTHONPATH", "PYTHONHOME"):
            self.variables.pop(name, None)
        clone = directory / "compatcheck"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, check=True, capture_output=True, text=True)
        for name, text in FILES.items():
            self.write(name, text)
        shutil.copy(ROOT / "fixtures/cases/openrlhf-llama3-70b/config.json", self.directory / "configs")
        hooks = "".join(
            f"      - id: {name}\n"
            + ("        args: [--training, configs/args.yaml, --model, configs/config.json]\n" if "env" in name else "")
            for name in HOOKS
        )
        self.write(
            ".pre-commit-config.yaml",
            f"repos:\n  - repo: {clone}\n    rev: {revision.stdout.strip()}\n    hooks:\n{hooks}",
        )
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "start")
        subprocess.run(
            [sys.executable, "-m", "pre_commit", "install-hooks"],
            cwd=self.directory,
            env=self.variables,
            check=True,
        )

    @staticmethod
    def fake_environment(directory: Path) -> Path:
        """Write an environment with deepspeed 0.16.4, and the command beside its interpreter."""
        binaries = directory / "environment/bin"
        packages = directory / "environment/lib/python3.11/site-packages"
        binaries.mkdir(parents=True)
        (directory / "environment/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
        for name, version in (("torch", "2.5.1"), ("deepspeed", "0.16.4"), ("transformers", "4.48.0")):
            info = packages / f"{name}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        script = binaries / "compatcheck"
        script.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m compatcheck.cli "$@"\n',
        )
        script.chmod(0o755)
        return binaries

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.directory, env=self.variables, check=True)

    def run(self, hook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one hook, without a network where the system lets us take it away."""
        command = [sys.executable, "-m", "pre_commit", "run", hook, *arguments]
        if shutil.which("unshare") and subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0:
            command = ["unshare", "-rn", *command]
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Repository:
    if not (ROOT / ".git").exists():
        pytest.skip("the hooks are installed from a git checkout")
    return Repository(tmp_path_factory.mktemp("pre-commit"))


def test_whole_repository_shows_the_incident(repository) -> None:
    done = repository.run("compatcheck", "--all-files")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "HIGH deepspeed/zero3-params-kept-in-backward" in done.stdout
    assert "127.5 GiB per rank" in done.stdout
    assert "app.json" not in done.stdout


@pytest.mark.parametrize("name", ["requirements.txt", "configs/ds.json", "configs/args.yaml"])
def test_any_half_of_the_run_shows_the_incident(repository, name) -> None:
    done = repository.run("compatcheck", "--files", name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "127.5 GiB per rank" in done.stdout


@pytest.mark.parametrize("name", ["app.json", "notes.yaml"])
def test_files_that_are_no_input_pass(repository, name) -> None:
    done = repository.run("compatcheck", "--files", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


def test_environment_hook_reads_the_active_environment(repository) -> None:
    done = repository.run("compatcheck-env")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "deepspeed/zero3-params-kept-in-backward" in done.stdout


def test_rule_hook_passes_over_data_and_names_the_problem(repository) -> None:
    done = repository.run("compatcheck-rules", "--all-files")
    assert "Skipped" in done.stdout
    repository.write("rules/mine/broken.yaml", "title: no rule yet\n")
    repository.git("add", "rules/mine/broken.yaml")
    done = repository.run("compatcheck-rules", "--files", "rules/mine/broken.yaml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rules/mine/broken.yaml" in done.stdout
