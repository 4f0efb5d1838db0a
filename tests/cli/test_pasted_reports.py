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


@pytest.mark.parametrize("suffix", [".md", ".sh"])
def test_a_file_that_a_command_names_and_is_not_here_counts_in_a_text_as_in_a_script(
    tmp_path: Path, suffix: str
) -> None:
    command = (
        "deepspeed --num_gpus 8 train.py --deepspeed ds_z3.json --model_name_or_path Qwen/Qwen2.5-7B --bf16 True\n"
    )
    path = tmp_path / f"run{suffix}"
    path.write_text(f"```bash\n{command}```\n" if suffix == ".md" else command, encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ntransformers==4.48.3\ndeepspeed==0.16.8\n")
    ran = run("check", path, tmp_path / "requirements.txt", "--select", "torch/*")
    assert (ran.code, ran.out.partition(":")[0]) == (4, "NOT CHECKED WHOLE")


ISSUE = """\
It dies since the upgrade. My file:

```yaml
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: full
per_device_train_batch_size: 4
cutoff_len: 8192
bf16: true
```

```bash
$ llamafactory-cli train sft.yaml
```

```
torch==2.6.0
transformers==4.49.0
```

```
Traceback (most recent call last):
  File "/env/transformers/loss/loss_utils.py", line 36, in ForCausalLMLoss
    logits = logits.float()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.56 GiB. GPU 0 has a total
capacity of 79.15 GiB of which 6.02 GiB is free.
```
"""


def test_the_blocks_of_an_issue_are_its_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "issue.md"
    path.write_text(ISSUE, encoding="utf-8")
    facts = run("facts", path)
    assert facts.code == 0  # the one block of YAML is the one file that the command names
    assert "training.micro_batch_size = 4" in facts.out
    assert "sft.yaml:8 (per_device_train_batch_size)" in " ".join(facts.out.split())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ISSUE.encode())))
    assert "transformers/causal-lm-loss-in-float32" in run("check", "-").out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ISSUE.encode())))
    explained = run("oom", "-")
    assert "fp32 logits [4, 8192, 152064]" in explained.out
    assert "lower training.micro_batch_size, 4 now" in " ".join(explained.out.split())


@pytest.mark.parametrize("name", ["issue.md", "notes.txt", "-"])
def test_prose_is_told_what_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    text = "Hello: my run dies since yesterday.\nI use import pynvml and nothing else: what can I do?\nThanks <details> a lot\n"
    path = tmp_path / name
    if name == "-":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    else:
        path.write_text(text, encoding="utf-8")
    ran = run("check", "-" if name == "-" else path)
    said = ran.out + ran.err
    assert ran.code in {3, 4}
    assert "looked for: collect_env" in " ".join(said.split())
    assert "YAML:" not in said
    assert "is not a requirement" not in said


def test_a_list_of_conda_in_a_block_below_prose_is_read(tmp_path: Path) -> None:
    rows = "_libgcc_mutex 0.1 conda_forge conda-forge\npytorch 2.5.1 py3.10_cuda12.4_cudnn9.1.0_0 pytorch\n"
    rows += "transformers 4.46.3 pypi_0 pypi\nnumpy 1.26.4 py310h5f9d8c6_0\n"
    text = "### Environment\n\nMine:\n\n```\n"
    text += f"# packages in environment at /opt/conda:\n#\n# Name Version Build Channel\n{rows}bzip2\n```\n"
    path = tmp_path / "issue.txt"
    path.write_text(text, encoding="utf-8")
    ran = run("facts", path)
    assert ran.code == 0
    assert "torch" in ran.out
    assert "packages     2" in ran.out
