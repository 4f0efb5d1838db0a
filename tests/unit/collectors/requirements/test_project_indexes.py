"""The index a project takes torch from decides what its torch is built for."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.python.pinned_build import SEVERAL_BUILDS
from compatcheck.collectors.read import read_environments
from compatcheck.collectors.requirements.project_indexes import torch_index
from compatcheck.core.toml import parse_toml

CU118 = 'url = "https://download.pytorch.org/whl/cu118"'
CPU = 'url = "https://download.pytorch.org/whl/cpu"'
POETRY = f'[[poetry.source]]\nname = "p"\n{CU118}\npriority = "explicit"\n'
UV = f'[[uv.index]]\nname = "cu"\n{CU118}\nexplicit = true\n[[uv.index]]\nname = "cpu"\n{CPU}\nexplicit = true\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        (UV, None),
        (UV + '[uv.sources]\ntorch = { index = "cu" }\n', "cu118"),
        (UV + '[uv.sources]\ntorch = [{ index = "cu", marker = "sys_platform == \'linux\'" }]\n', "cu118"),
        (
            UV + '[uv.sources]\ntorch = [{ index = "cu", extra = "a" }, { index = "cpu", extra = "b" }]\n',
            SEVERAL_BUILDS,
        ),
        (UV.replace("explicit = true\n", "", 1), "cu118"),
        (POETRY + '[poetry.dependencies]\ntorch = { version = "*", source = "p" }\n', "cu118"),
        (POETRY, None),
        (f'[[pdm.source]]\nname = "p"\n{CU118}\n', "cu118"),
        ('[uv.sources]\ntorch = { git = "https://github.com/pytorch/pytorch" }\n', SEVERAL_BUILDS),
        ("[uv]\nindex = 3\nsources = 4\n", None),
    ],
)
def test_index_of_torch(text: str, found: str | None) -> None:
    index = torch_index(parse_toml(text, "pyproject.toml"))
    assert index == found or (found is not None and index is not None and index.endswith(found))


def test_choosing_between_builds_leaves_it_open(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\ndependencies = ["torch==2.6.0"]\n' + UV.replace("[[uv", "[[tool.uv")
    path = tmp_path / "pyproject.toml"
    path.write_text(
        text + '[tool.uv.sources]\ntorch = [{ index = "cu", extra = "a" }, { index = "cpu", extra = "b" }]\n'
    )
    (environment,) = read_environments(str(path), "pyproject")
    assert "runtime.torch_cuda" not in environment.facts
