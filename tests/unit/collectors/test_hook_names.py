"""The pre-commit hook is given every file that a check of the directory would look into, whatever its name."""

from __future__ import annotations

import re

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


ODD = ("deps/gpu.list", "conf/common.env", "constraints/gpu.txt", "requirements/a.lock", "x.spdx.rdf", "run")
"""What a run may include, source or install has any name."""


def test_every_kind_of_list_has_a_name_here() -> None:
    known = [recogniser for recogniser in RECOGNISERS if recogniser.kind not in ONLY_NAMED]
    for recogniser in known:
        assert any(recogniser.pattern.fullmatch(name.lower()) for name in NAMES), f"add a name of {recogniser.kind}"
    for name in NAMES:
        assert any(recogniser.pattern.fullmatch(name.lower()) for recogniser in known), name


def test_the_hook_is_given_every_file_of_a_commit() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8"))}
    hook = hooks["compatcheck"]
    pattern = re.compile(hook.get("files", ""))
    assert all(pattern.search(f"{folder}{name}") for folder in ("", "a/b/") for name in (*NAMES, *ODD))
    narrowing = {"exclude", "types_or", "exclude_types", "pass_filenames"} & hook.keys()
    assert (hook["types"], narrowing) == ([], set()), "without `types` links are left out"
