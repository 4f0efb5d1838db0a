"""Environment files of conda: specifications, pip lists, variables, selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.conda.environment_yml import read_conda_environment
from compatcheck.core.errors import InputError
from tests.effort import at_most

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
name: train
channels: [pytorch, nvidia, conda-forge]
dependencies:
  - python=3.11
  - pytorch::pytorch=2.5.1
  - pytorch-cuda=12.4   # as the driver has it
  - numpy>=1.26,<2|>=2.1
  - flash-attn==2.7.0
  - cudnn
  - openssl=1.1.1w
  - vc14_runtime  # [win]
  - sel(linux): deepspeed=0.16.0=py311_0
  - sel(osx): jax
  - pip:
    - -r more.txt
    - --extra-index-url https://user:secret@index.example/simple
    - transformers==4.46.0
    - tomli==2.0.1; python_version < "3.11"
    - 'trl >=0.9, <0.10'  # old
variables:
  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True
"""


def write(folder: Path, text: str) -> str:
    path = folder / "environment.yml"
    path.write_text(text)
    return str(path)


def test_everything_a_person_writes(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("vllm==0.6.4\n")
    environment = read_conda_environment(write(tmp_path, TEXT))
    stated = {name: package.version or package.specifier for name, package in environment.packages.items()}
    assert stated == {
        "torch": "==2.5.1.*",
        "numpy": ">=1.26,<2 || >=2.1",
        "flash-attn": "2.7.0",
        "deepspeed": "0.16.0",
        "transformers": "4.46.0",
        "trl": "<0.10,>=0.9",
        "vllm": "0.6.4",
    }
    assert environment.python == "3.11"
    assert not environment.complete
    assert environment.facts["runtime.torch_build"][0] == "cuda"
    assert environment.facts["runtime.torch_cuda"][0] == "12.4"
    assert environment.facts["allocator.expandable_segments"][0] is True
    assert environment.variables == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert not environment.skipped
    assert any("[win]" in note for note in environment.notes)
    lines = TEXT.splitlines()
    for name, start in (
        ("torch", "  - pytorch::"),
        ("transformers", "    - transformers"),
        ("deepspeed", "  - sel(linux)"),
    ):
        assert lines[(environment.packages[name].source.line or 0) - 1].startswith(start)


def test_an_export_is_complete(tmp_path: Path) -> None:
    text = """\
name: train
dependencies:
  - openssl=3.0.15=h5eee18b_0
  - python=3.11.10=he870216_0
  - pytorch=2.5.1=cuda126_py311h1_300
  - pip:
      - deepspeed==0.16.0
prefix: /opt/conda/envs/train
"""
    environment = read_conda_environment(write(tmp_path, text))
    assert environment.complete
    assert environment.python == "3.11.10"
    assert environment.packages["torch"].version == "2.5.1"
    assert environment.facts["runtime.torch_cuda"][0] == "12.6"
    assert not read_conda_environment(write(tmp_path, text.replace("deepspeed==", "deepspeed>="))).complete
    assert not read_conda_environment(write(tmp_path, text.replace("openssl=3.0.15=h5eee18b_0", "openssl"))).complete


@pytest.mark.parametrize(
    ("lines", "build", "cuda"),
    [
        ("- pytorch\n  - cpuonly", "cpu", None),
        ("- pytorch-gpu=2.5.1", "cuda", "missing"),
        ("- pytorch-cpu", "cpu", None),
        ("- pytorch=2.5.*=*cuda*", "cuda", "missing"),
        ("- pytorch=2.5.*=*cuda126*", "cuda", "12.6"),
        ("- pytorch=2.5.1=cpu_mkl_py311_0", "cpu", None),
        ("- pytorch", None, "missing"),
        ("- pytorch-cuda=12.1\n  - pytorch\n  - pip:\n    - torch==2.5.1+cu124", "cuda", "12.4"),
        ("- pytorch=2.4.0\n  - pytorch-cuda=12.1\n  - pip:\n    - torch==2.5.1", None, "missing"),
    ],
)
def test_what_torch_is_built_for(tmp_path: Path, lines: str, build: str | None, cuda: str | None) -> None:
    environment = read_conda_environment(write(tmp_path, f"dependencies:\n  {lines}\n"))
    assert "torch" in environment.packages
    assert environment.facts.get("runtime.torch_build", (None,))[0] == build
    assert environment.facts.get("runtime.torch_cuda", ("missing",))[0] == cuda


def test_what_cannot_be_read_is_said_and_the_rest_counts(tmp_path: Path) -> None:
    text = """\
dependencies:
  - pytorch=2.5.1
  - "=1.2"
  - [numpy]
  - gcc: 3
  - transformers ^4.*$
  - pip:
    - accelerate=1.0
    - {a: b}
    - peft==0.13.0
"""
    environment = read_conda_environment(write(tmp_path, text))
    assert set(environment.packages) == {"torch", "transformers", "peft"}
    assert environment.packages["transformers"].specifier == ""
    assert [entry.source.line for entry in environment.skipped] == [3, 4, 5, 9, 8, 6]
    assert all(entry.hint and entry.named for entry in environment.skipped)


@pytest.mark.parametrize("text", ["", "a: b\n", "dependencies: torch\n", "- torch\n", "dependencies:\n  torch: 2\n"])
def test_what_is_no_environment_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        read_conda_environment(write(tmp_path, text))


def test_a_cuda_that_is_no_version_is_no_build(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text("dependencies:\n  - pytorch=2.5.1\n  - pytorch-cuda=ch-cuda=12.4\n  - cudnn=9.1\n")
    environment = read_conda_environment(str(path))
    assert environment.packages["torch"].specifier is not None
    assert "runtime.torch_cuda" not in environment.facts


@pytest.mark.parametrize(
    ("asked", "wanted", "detail"),
    [
        ("pytorch=2.3.1", ">=2.6", "conda is asked for 2.3.1, pip writes >=2.6 over it"),
        ("pytorch=2.6", ">=2.6.1", None),  # some 2.6 is no other
        ("pytorch=2.6.1", ">=2.6", None),
        ("pytorch>=2.3", ">=2.6", None),
    ],
)
def test_a_range_of_pip_that_excludes_conda_release_writes_over_it(
    tmp_path: Path, asked: str, wanted: str, detail: str | None
) -> None:
    environment = read_conda_environment(
        write(tmp_path, f"dependencies:\n  - {asked}\n  - pip:\n    - torch{wanted}\n")
    )
    assert [item.detail for item in environment.damage] == ([] if detail is None else [detail])


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        ("pytorch=2.3.1", "conda is asked for 2.3.1, pip writes 2.5.1+cu124 over it"),
        ("pytorch=2.3", "conda is asked for 2.3, pip writes 2.5.1+cu124 over it"),
        ("pytorch>=2.3,<2.4", "conda is asked for >=2.3,<2.4, pip writes 2.5.1+cu124 over it"),
        ("pytorch=2.3.1=py3.11_cuda12.1_cudnn8.9.2_0", "conda installs 2.3.1, pip writes 2.5.1+cu124 over it"),
        ("pytorch=2.5", None),
        ("pytorch=2.5.1", None),
        ("pytorch", None),
        ("pytorch!=2.4", None),
    ],
)
def test_pip_writes_over_what_conda_is_asked_for(tmp_path: Path, asked: str, detail: str | None) -> None:
    text = f"dependencies:\n  - {asked}\n  - pip:\n    - torch==2.5.1+cu124\n"
    environment = read_conda_environment(write(tmp_path, text))
    assert [item.detail for item in environment.damage] == ([] if detail is None else [detail])


def test_a_comment_of_many_selectors_is_looked_through_once(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(f"name: x\ndependencies:\n  - torch=2.9.0  {'#[' * 100_000}\n  - jax  # [] # [win]\n")
    with at_most(4):
        read = read_conda_environment(str(path))
    assert list(read.packages) == ["torch"]
