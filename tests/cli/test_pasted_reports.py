"""Pasted reports on the command line: `check`, `facts` and `oom` of a copied issue."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.cli.run_cli import run

REPORT = """\
PyTorch version: 2.5.1+cu124
Is debug build: False
CUDA used to build PyTorch: 12.4
ROCM used to build PyTorch: N/A

Is CUDA available: True
CUDA runtime version: 12.1.105
GPU models and configuration: GPU 0: NVIDIA A100-SXM4-80GB
Nvidia driver version: 550.54.15
cuDNN version: Could not collect

Versions of relevant libraries:
[pip3] torch==2.5.1
[pip3] transformers==4.46.3
"""
DS_REPORT = (
    "torch version .................... 2.5.1+cu124\ndeepspeed info ................... 0.16.4, unknown, unknown\n"
)
ACCELERATE = """\
- `Accelerate` version: 1.1.1
- Python version: 3.10.12
- PyTorch version (GPU?): 2.5.1+cu124 (True)
- `Accelerate` default config:
\t- compute_environment: LOCAL_MACHINE
\t- distributed_type: DEEPSPEED
\t- mixed_precision: bf16
\t- num_processes: 8
\t- deepspeed_config: {'gradient_accumulation_steps': 4, 'zero_stage': 3}
\t- downcast_bf16: no
"""
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.46 GiB. GPU 0 has a total capacity of 79.14 GiB of which "
    "3.02 GiB is free. Including non-PyTorch memory, this process has 76.11 GiB memory in use. Of the allocated memory 62.21 GiB "
    "is allocated by PyTorch, and 13.04 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize("name", ["issue.md", "job.log", "issue.txt"])
def test_facts_of_a_copied_issue_have_their_lines_and_origin(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(f"It dies.\n\n```\n{REPORT}```\n", encoding="utf-8")
    ran = run("facts", path)
    assert ran.code == 0
    assert "runtime.torch_cuda = 12.4" in ran.out
    assert "runtime.nvcc = 12.1.105" in ran.out
    assert f"{name}:12 (Nvidia driver version)" in ran.out
    json = run("facts", path, "--format", "json").out
    assert '"reported"' in json
    assert '"measured"' not in json


def test_check_reads_a_report_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO((REPORT + DS_REPORT).encode())
        closed = False

    monkeypatch.setattr("sys.stdin", Input())
    ran = run("check", "-")
    assert ran.code in {0, 1}
    assert "deepspeed/" in ran.out


def test_the_configuration_of_accelerate_in_a_report_counts(tmp_path: Path) -> None:
    path = tmp_path / "issue.md"
    path.write_text(ACCELERATE, encoding="utf-8")
    ran = run("facts", path)
    assert "training.zero_stage = 3" in ran.out
    assert "hardware.world_size = 8" in ran.out


def test_two_machines_are_two_subjects(tmp_path: Path) -> None:
    path = tmp_path / "issue.md"
    path.write_text(REPORT + "\nand there:\n\n" + REPORT.replace("2.5.1", "2.4.0"), encoding="utf-8")
    ran = run("facts", path)
    assert "line 1: collect_env" in ran.out
    assert "line 18: collect_env" in ran.out


def test_a_directory_is_walked_past_texts_and_logs(tmp_path: Path) -> None:
    (tmp_path / "issue.md").write_text(REPORT, encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n", encoding="utf-8")
    ran = run("facts", tmp_path)
    assert "issue.md" not in ran.out


def test_oom_uses_the_report_beside_the_message(tmp_path: Path) -> None:
    path = tmp_path / "issue.md"
    path.write_text(
        MESSAGE + REPORT.replace("[pip3] transformers==4.46.3\n", "") + DS_REPORT + ACCELERATE, encoding="utf-8"
    )
    ran = run("oom", path)
    assert ran.code == 0
    assert "deepspeed/" in ran.out
