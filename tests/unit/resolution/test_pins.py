"""Releases that a manifest asks for and that require other releases of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.read import read_environments
from compatcheck.resolution.pins import find_refused
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

BOTH = "openrlhf==0.6.2\ndeepspeed==0.16.8\n"
PROJECT = '[project]\nname = "a"\nversion = "1"\ndependencies = ["openrlhf==0.6.2", "deepspeed==0.16.8"]\n'
OVERRIDE = '[tool.uv]\noverride-dependencies = ["deepspeed==0.16.8"]\n'


def refused(path: Path, kind: str, text: str) -> list[str]:
    path.write_text(text)
    (environment,) = read_environments(str(path), kind)
    return sorted({damage.detail for damage in find_refused(environment, open_rules())})


def test_the_lines_the_pin_and_the_ways_out_are_named(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    (said,) = refused(path, "requirements", BOTH)
    assert said == (
        f"openrlhf 0.6.2 requires deepspeed==0.16.4 ({path}:1), and deepspeed is 0.16.8 ({path}:2); "
        "openrlhf 0.6.2 allows deepspeed 0.16.4, openrlhf 0.8.1 allows deepspeed 0.16.8"
    )


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        ("requirements", "openrlhf==0.6.2\ndeepspeed==0.16.4+cu124\n", 0),
        ("requirements", "openrlhf==0.6.2\ndeepspeed>=0.16.8\n", 0),  # a resolver sees to it
        ("requirements", "openrlhf==0.6.2\ndeepspeed==0.16.8; sys_platform == 'win32'\n", 0),
        ("requirements", "openrlhf==0.6.2\ndeepspeed @ git+https://github.com/deepspeedai/DeepSpeed@v0.16.8\n", 0),
        ("requirements", "axolotl==0.12.2\nbitsandbytes==0.46.1\n", 0),  # no wheel: its build looks at the machine
        ("requirements", "torchvision==0.22.0\nvllm==0.10.2+cu129\n", 1),
        ("requirements", "torchvision==0.22.0\nvllm==0.10.2+rocm641\n", 0),  # made for a torch of AMD's
        ("constraints", BOTH, 0),
        ("pyproject", PROJECT, 1),
        ("pyproject", PROJECT + OVERRIDE, 0),
        ("dockerfile", "FROM python:3.11\nRUN pip install openrlhf==0.6.2 deepspeed==0.16.8\n", 1),
        ("dockerfile", "FROM python:3.11\nRUN pip install --no-deps openrlhf==0.6.2 deepspeed==0.16.8\n", 0),
        ("dockerfile", "FROM python:3.11\nRUN pip install openrlhf==0.6.2\nRUN pip install deepspeed==0.16.8\n", 0),
        ("conda_environment", "dependencies:\n- python=3.11\n- pip:\n  - openrlhf==0.6.2\n  - deepspeed==0.16.8\n", 1),
        ("conda_environment", "dependencies:\n- python=3.11\n- deepspeed=0.16.8\n- pip:\n  - openrlhf==0.6.2\n", 0),
        ("pip_list", "Package Version\n------- -------\nopenrlhf 0.6.2\ndeepspeed 0.16.8\n", 0),  # installed: it runs
    ],
)
def test_only_what_one_installer_is_asked_for_exactly_counts(tmp_path: Path, kind: str, text: str, number: int) -> None:
    assert len(refused(tmp_path / "file", kind, text)) == number


def test_an_override_of_the_project_in_the_same_folder_counts_for_its_lists(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    assert len(refused(path, "requirements", BOTH)) == 1
    (tmp_path / "pyproject.toml").write_text(OVERRIDE.replace("==0.16.8", ">=0.16.8"))
    assert refused(path, "requirements", BOTH) == []
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\noverride-dependencies = ["ray==2.43.0"]\n')
    assert len(refused(path, "requirements", BOTH)) == 1
    (tmp_path / "pyproject.toml").write_text("[tool.uv")
    assert len(refused(path, "requirements", BOTH)) == 1
