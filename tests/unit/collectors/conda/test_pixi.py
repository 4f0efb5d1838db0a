"""Manifests of pixi: features, targets, environments, packages of PyPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.conda.pixi import read_pixi
from compatcheck.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
[workspace]
channels = ["conda-forge"]
platforms = ["linux-64", "win-64"]

[dependencies]
python = "3.11.*"
numpy = ">=1.26,<3"
pytorch-gpu = { version = "2.5.*", build = "*cuda126*" }

[target.win-64.dependencies]
vc = "*"

[target.linux-64.dependencies]
numpy = "==2.1.0"

[pypi-dependencies]
transformers = { version = "==4.46.0", extras = ["torch"] }
my-train = { path = ".", editable = true }
trl = "*"

[activation.env]
PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"

[feature.serve.pypi-dependencies]
vllm = ">=0.6,<0.7"

[environments]
serve = ["serve"]
lean = { features = ["serve"], no-default-feature = true }
"""


def test_one_environment_for_each_that_is_defined(tmp_path: Path) -> None:
    path = tmp_path / "pixi.toml"
    path.write_text(TEXT)
    default, serve, lean = read_pixi(str(path))
    assert [item.origin for item in (default, serve, lean)] == [
        f"{path} ({name})" for name in ("default", "serve", "lean")
    ]
    stated = {name: package.version or package.specifier for name, package in default.packages.items()}
    assert stated == {"numpy": "2.1.0", "torch": "==2.5.*", "transformers": "4.46.0", "my-train": "", "trl": ""}
    assert default.python == "3.11"
    assert default.facts["runtime.torch_cuda"][0] == "12.6"
    assert default.facts["allocator.expandable_segments"][0] is True
    assert not default.complete
    assert set(serve.packages) == {*stated, "vllm"}
    assert set(lean.packages) == {"vllm"}
    line = default.packages["transformers"].source.line
    assert line is not None
    assert TEXT.splitlines()[line - 1].startswith("transformers")


def test_a_pyproject_brings_its_own_requirements(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["peft==0.13.0"]\n'
        '[tool.pixi.workspace]\nchannels = []\n[tool.pixi.dependencies]\npytorch = "2.5.1"\n'
    )
    (environment,) = read_pixi(str(path))
    assert {name: package.version for name, package in environment.packages.items()} == {
        "peft": "0.13.0",
        "torch": "2.5.1",
    }


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "pixi.toml"
    path.write_text(
        '[workspace]\n[dependencies]\npytorch = 3\nnumpy = "^2"\n[pypi-dependencies]\npeft = "~~1"\ntrl = 4\n'
    )
    (environment,) = read_pixi(str(path))
    assert set(environment.packages) == {"numpy"}
    assert [entry.source.line for entry in environment.skipped] == [3, 6, 7, 4]


@pytest.mark.parametrize("text", ["[package]\nname = 1\n[[bin]]\n", "x = 1\n", "workspace = [\n"])
def test_what_is_no_workspace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pixi.toml"
    path.write_text(text)
    if "package" in text:
        assert not read_pixi(str(path))[0].packages
        return
    with pytest.raises(InputError):
        read_pixi(str(path))
