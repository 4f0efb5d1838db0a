"""The pattern of the pre-commit hook lets every file through that a directory's check would look into."""

from __future__ import annotations

import re

import pytest
import yaml

from compatcheck.collectors.recognise import ONLY_NAMED, RECOGNISERS
from tests import ROOT

HOOKS = ROOT / ".pre-commit-hooks.yaml"
NAMES = (
    "pixi.lock",
    "pixi.toml",
    "pyproject.toml",
    "conda-lock.yml",
    "gpu.conda-lock.yaml",
    "environment.yml",
    "env.yaml",
    "requirements.txt",
    "conda-linux-64.lock",
    "spec-file.txt",
    "explicit.lst",
    "env.list",
    "conda_list.json",
    "bom.json",
    "sbom.cdx.json",
    "cyclonedx.xml",
    "bom.xml",
    "x.spdx",
    "sbom.spdx.json",
    "sbom.spdx.yaml",
    "sbom.tag",
    "syft.json",
    "pylock.toml",
    "pylock.gpu.toml",
    "uv.lock",
    "train.py.lock",
    "poetry.lock",
    "pdm.lock",
    "pdm.gpu.lock",
    "Pipfile.lock",
    "Pipfile",
    "Dockerfile",
    "Dockerfile.gpu",
    "Dockerfile2",
    "ContainerfileGpu",
    "train.dockerfile",
    "setup.py",
    "setup.cfg",
    "reqs.txt",
    "dev-reqs.txt",
    "gpu.reqs",
    "deps.txt",
    "requirements-dev",
    "requirements/gpu/base.txt",
    "pip-inspect.json",
    "pip_list.json",
    "pip_list.txt",
    "installed.log",
    "packages.out",
    "constraints.txt",
    "constraints-3.11.in",
    "upper-constraints.txt",
    "gpu-constraints-cu121.txt",
    "myconstraints.txt",
    "constraints.lock",
    "constraints.pip",
    "constraints/gpu.txt",
    "constraint/gpu.txt",
    "requirements/gpu.lock",
    "requirements-dev.in",
    "requirements/base.txt",
    "freeze.txt",
)


def test_the_hook_looks_at_every_kind_of_file() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8"))}
    pattern = re.compile(hooks["compatcheck"]["files"])
    known = [recogniser for recogniser in RECOGNISERS if recogniser.kind not in ONLY_NAMED]
    for recogniser in known:
        names = [name for name in NAMES if recogniser.pattern.fullmatch(name.lower())]
        assert names, f"add a file name of {recogniser.kind} to NAMES, and its pattern to {HOOKS.name}"
    for name in NAMES:
        assert any(recogniser.pattern.fullmatch(name.lower()) for recogniser in known), name
        assert pattern.search(name), name
        assert pattern.search(f"a/b/{name}"), name


@pytest.mark.parametrize(
    "name", ["README.md", "main.go", "train.py", "index.html", "poetry.lock.bak", "yarn.lock", "go.sum"]
)
def test_the_hook_leaves_other_files_alone(name: str) -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8"))}
    assert re.search(hooks["compatcheck"]["files"], name) is None
