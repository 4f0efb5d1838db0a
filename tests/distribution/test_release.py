"""A release: its version stands in one place, its workflow is well formed, and its script builds and tries all of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from compatcheck import __version__
from tests import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ".ci/release", *arguments],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_version_stands_in_one_place() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, newest = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", changelog, re.MULTILINE)[:2]
    assert (first, newest[0], bool(newest[1])) == (("Unreleased", ""), __version__, True)
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert set(re.findall(r"rev: v(\S+)", page)) == {__version__}


def test_the_workflow_publishes_without_a_token() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    steps = {name: [step.get("uses", step.get("run")) for step in job["steps"]] for name, job in jobs.items()}
    assert '.ci/release dist "$GITHUB_REF_NAME"' in steps["build"]
    assert any(step.startswith("actions/attest-build-provenance@") for step in steps["build"])
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert jobs["pypi"]["environment"] == "pypi"
    assert not re.search(r"password: (?!\$\{\{ github\.token)|secrets\.", WORKFLOW.read_text(encoding="utf-8"))
    needed = [job.get("needs", []) for job in jobs.values()]
    assert {name for needs in needed for name in ([needs] if isinstance(needs, str) else needs)} <= set(jobs)


@pytest.mark.versions
@pytest.mark.ci
def test_the_script_builds_and_tries_a_release(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = release(ROOT, str(tmp_path / "dist"), f"v{__version__}")
    assert done.returncode == 0, done.stderr[-2000:]
    names = {path.name for path in (tmp_path / "dist").iterdir()}
    assert names == {
        f"compatcheck-{__version__}.tar.gz",
        f"compatcheck-{__version__}-py3-none-any.whl",
        "compatcheck.pyz",
        "SHA256SUMS",
    }
    wrong = release(ROOT, str(tmp_path / "other"), "v99.0.0")
    assert (wrong.returncode, f"the tag is v99.0.0 and the package is {__version__}" in wrong.stderr) == (2, True)


def test_what_the_workflow_runs_of_others_is_pinned_by_hash() -> None:
    steps = [
        step for job in yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values() for step in job["steps"]
    ]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []
