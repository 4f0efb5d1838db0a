"""The patient stays untouched: compatcheck enters an environment and changes no version in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = [pytest.mark.versions, pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")]

TORCH = "2.13.0"
"""The release of constraints.txt, of which the CPU build is used."""
EXTRAS = ("trace", "deepspeed", "audit", "bisect", "html", "all", "test")
AT_MOST = 4 if sys.version_info >= (3, 11) else 5
"""Distributions that an installation may add, compatcheck itself included; Python 3.10 has no TOML reader of its own."""
OLD = ("click==8.0.4", "packaging==21.3", "PyYAML==6.0", "pyparsing==2.4.7")
"""What a distribution of 2022 has (PyYAML 6.0 is its oldest release with wheels for this Python)."""


def call(*command: str | Path, directory: Path = ROOT, **variables: str) -> str:
    """Run a program and return what it printed; fail with what it said."""
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env={**environment, "PYTHONWARNINGS": "", **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    findings = "compatcheck" in {Path(word).name for word in command}
    assert done.returncode == 0 or (findings and done.returncode == 1), done.stderr[-2000:]
    return done.stdout


def torch_requirement() -> list[str]:
    """Return what asks for the CPU build: the wheel at hand, else the index of CPU builds."""
    folders = os.environ.get("UV_FIND_LINKS", "").split(",")
    at_hand = any(list(Path(folder).glob(f"torch-{TORCH}+cpu-*.whl")) for folder in folders if folder)
    return [f"torch=={TORCH}+cpu"] if at_hand else ["--torch-backend", "cpu", f"torch=={TORCH}"]


def make(prefix: Path, *requirements: str) -> Path:
    """Make an environment with pip and these requirements, and return its interpreter."""
    call("uv", "venv", "-q", "--seed", "--python", sys.executable, prefix)
    python = prefix / "bin" / "python"
    if requirements:
        call("uv", "pip", "install", "-q", "-p", python, *requirements)
    return python


def installed(python: Path) -> dict[str, str]:
    rows = json.loads(call("uv", "pip", "list", "-q", "--format", "json", "-p", python))
    return {row["name"]: row["version"] for row in rows}


def install(installer: str, python: Path, wheel: Path) -> None:
    """Install compatcheck as a person would."""
    if installer == "pip":
        call(python, "-m", "pip", "install", "-q", wheel)
    else:
        call("uv", "pip", "install", "-q", "-p", python, wheel)


def assert_untouched(before: dict[str, str], after: dict[str, str]) -> None:
    assert {name: after.get(name) for name in before} == before
    added = set(after) - set(before)
    assert "compatcheck" in added
    assert len(added) <= AT_MOST, sorted(added)


@pytest.mark.ci
@pytest.mark.parametrize(("installer", "transformers"), [("pip", "transformers<5"), ("uv", "transformers>=5")])
def test_no_version_changes_and_few_are_added(installer: str, transformers: str, wheel: Path, tmp_path: Path) -> None:
    python = make(tmp_path / "stack", *torch_requirement(), transformers)
    before = installed(python)
    assert before["torch"].startswith(TORCH)
    assert not [name for name in before if name.startswith(("nvidia-", "cuda-"))]
    install(installer, python, wheel)
    assert_untouched(before, installed(python))
    # The checker in the environment, asked about the environment.
    command = python.with_name("compatcheck")
    report = json.loads(call(command, "env", "--format", "json", directory=tmp_path))
    seen = {row["name"]: row["version"] for row in report["subjects"][0]["environment"]["packages"]}
    assert {name: seen.get(name) for name in before} == before
    facts = call(command, "facts", "--model", "llama-3-70b", "--gpu", "8xH100-80GB", directory=tmp_path)
    assert "model.parameters_in_blocks" in facts
    assert "H100-80GB" in facts


@pytest.mark.ci
def test_old_versions_are_kept_and_work(wheel: Path, tmp_path: Path) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("those releases have no wheels for this Python")
    python = make(tmp_path / "old", *OLD)
    before = installed(python)
    install("pip", python, wheel)
    assert_untouched(before, installed(python))
    case = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"
    command = python.with_name("compatcheck")
    assert "zero3-params-kept-in-backward" in call(command, "check", "-q", case, directory=tmp_path)


@pytest.mark.ci
def test_extras_resolve_without_a_cuda_build() -> None:
    for extra in EXTRAS:
        found = call(
            "uv",
            "pip",
            "compile",
            "-q",
            "--no-header",
            "--no-annotate",
            "--python-version",
            "3.11",
            *("--constraint", "constraints.txt"),
            *(["--torch-backend", "cpu"] if torch_requirement()[0].startswith("--") else []),
            *("--extra", extra),
            "pyproject.toml",
        ).splitlines()
        names = {line.partition("==")[0] for line in found}
        assert {"click", "packaging", "pyyaml"} <= names
        assert not [name for name in names if name.startswith(("nvidia-c", "cuda-"))], extra
        if extra in {"trace", "deepspeed", "all"}:
            assert f"torch=={TORCH}+cpu" in found


@pytest.mark.parametrize("source", [".", f"git+file://{ROOT}"], ids=["directory", "git"])
def test_pip_installs_a_checkout(source: str, tmp_path: Path) -> None:
    python = make(tmp_path / "venv")
    call(python, "-m", "pip", "install", "-q", source)
    assert list((python.parent.parent / "lib").glob("python*/site-packages/compatcheck/_database.jsonl"))
    rules = call(python.with_name("compatcheck"), "rules", "list", directory=tmp_path)
    assert "deepspeed/zero3-params-kept-in-backward" in rules


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.11", "3.13"])
def test_tool_of_its_own_looks_at_another_python(version: str, tmp_path: Path) -> None:
    """``uvx`` runs the tool elsewhere; the stack may be older than what compatcheck itself runs on."""
    # Shims on PATH name versions that are not active; pyenv's own directories are asked first.
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = str(kept[0]) if kept else shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"no Python {version}")
    call("uv", "venv", "-q", "--python", found, tmp_path / "stack")
    python = tmp_path / "stack" / "bin" / "python"
    call("uv", "pip", "install", "-q", "-p", python, "PyYAML", "accelerate==0.20.3", "--no-deps")
    before = installed(python)
    tool = ["uvx", "--python", sys.executable, "--from", str(ROOT), "compatcheck"]
    report = json.loads(call(*tool, "env", "--python", python, "--format", "json", "--fail-on", "critical"))
    environment = report["subjects"][0]["environment"]
    assert environment["python"].startswith(f"{version}.")
    assert {row["name"]: row["version"] for row in environment["packages"]} == before
    assert installed(python) == before
