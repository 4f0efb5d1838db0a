"""Blocks of a pasted text: one without a name is the file that the command of the text names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run_cli import run

YAML = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ntemplate: qwen\ndo_train: true\n"
    "per_device_train_batch_size: 3\n"
)
ZERO3 = '{"zero_optimization": {"stage": 3}}\n'
STACK = "torch==2.6.0\ndeepspeed==0.16.4\ntransformers==4.49.0\n"


def facts(path: Path) -> dict[str, object]:
    report = json.loads(run("check", path, "--format", "json").out)
    return {fact["name"]: fact["value"] for one in report["subjects"] for fact in one["facts"]}


@pytest.mark.parametrize(
    ("command", "language", "block", "fact"),
    [
        ("llamafactory-cli train sft.yaml", "yaml", YAML, ("training.micro_batch_size", 3)),
        ("deepspeed train.py --deepspeed ds.json --bf16", "json", ZERO3, ("training.zero_stage", 3)),
    ],
)
def test_a_block_is_the_one_file_that_a_command_names(
    tmp_path: Path, command: str, language: str, block: str, fact: tuple[str, object]
) -> None:
    text = f"I run\n```bash\n{command}\n```\nwith\n```{language}\n{block}```\n{STACK}"
    (tmp_path / "issue.md").write_text(text)
    found = facts(tmp_path / "issue.md")
    assert found[fact[0]] == fact[1]
    report = json.loads(run("check", tmp_path / "issue.md", "--format", "json").out)
    assert not [entry for entry in report["skipped"] if "no such file" in entry["reason"]]


def test_a_block_beside_a_file_that_is_only_written_stays_one_of_its_own(tmp_path: Path) -> None:
    text = f"```bash\ndeepspeed train.py --bf16 --metrics out.json\n```\n```json\n{ZERO3}```\n{STACK}"
    (tmp_path / "issue.md").write_text(text)
    assert facts(tmp_path / "issue.md")["training.zero_stage"] == 3


BANNER = """\
==((====))==  Unsloth 2025.12.6: Fast Gemma3 patching. Transformers: 4.57.3.
   \\\\   /|    Tesla T4. Num GPUs = 1. Max memory: 14.741 GB. Platform: Linux.
O^O/ \\_/ \\    Torch: 2.9.0+cu126. CUDA: 7.5. CUDA Toolkit: 12.6. Triton: 3.5.0
\\        /    Bfloat16 = FALSE. FA [Xformers = 0.0.33.post1. FA2 = False]
"""


@pytest.mark.parametrize(
    ("index", "kept"),
    [
        ("https://download.pytorch.org/whl/rocm6.4", False),
        ("https://download.pytorch.org/whl/cu126", True),
    ],
)
def test_the_recorded_output_of_another_machine_says_nothing_of_this_one(
    tmp_path: Path, index: str, *, kept: bool
) -> None:
    trains = (
        "from transformers import Trainer, TrainingArguments\nTrainer(model=m, args=TrainingArguments('o')).train()\n"
    )
    cells = [
        {"cell_type": "code", "metadata": {}, "source": [f"!pip install torch --index-url {index}\n"], "outputs": []},
        {
            "cell_type": "code",
            "metadata": {},
            "source": trains.splitlines(keepends=True),
            "outputs": [{"output_type": "stream", "name": "stdout", "text": BANNER.splitlines(keepends=True)}],
        },
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}, indent=1))
    assert ("hardware.gpu" in facts(tmp_path / "a.ipynb")) is kept
    report = json.loads(run("check", tmp_path / "a.ipynb", "--format", "json").out)
    assert any("ROCm" in entry["reason"] for entry in report["skipped"]) is not kept


DEFINITION = "Bootstrap: docker\nFrom: pytorch/pytorch:2.6.0\n%post\n  pip install deepspeed==0.16.4\n"
JOB = "executable = /usr/bin/deepspeed\narguments = train.py --deepspeed ds.json\nqueue\n"
COMPOSE = "services:\n  a:\n    build:\n      dockerfile_inline: |\n        FROM x\n        RUN pip install deepspeed==0.16.4\n"
BAKE = 'target "train" { dockerfile-inline = "FROM x\\nRUN pip install deepspeed==0.16.4" }\n'


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("train.def", DEFINITION, "is a definition of Apptainer"),
        ("job.sub", JOB, "is a job of HTCondor"),
        ("compose.yaml", COMPOSE, "holds a Dockerfile"),
        ("docker-bake.hcl", BAKE, "holds a Dockerfile"),
        ("ds.json", ZERO3[:-2] + ', "x": "' + "y" * (2 << 20) + '"}', "is 2.00 MiB large"),
        ("config.json", '{"model_type": "llama", "x": "' + "y" * (2 << 20) + '"}', "is 2.00 MiB large"),
    ],
)
def test_what_is_not_read_of_a_directory_is_said(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / "requirements.txt").write_text(STACK)
    (tmp_path / name).write_text(text)
    skipped = json.loads(run("check", tmp_path, "--format", "json").out)["skipped"]
    assert [one["reason"] for one in skipped if reason in one["reason"]]
    assert run("check", tmp_path, "--fail-unread", "--fail-on", "never").code == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.json", '{"text": "' + "y" * (2 << 20) + ' \\"model_type\\": 1"}'),
        ("x.def", "EXPORTS\n  pip install\n"),
        ("talk.sub", "1\n00:01 --> 00:02\nexecutable files\n"),
        ("compose.yaml", "services:\n  web:\n    image: nginx\n"),
    ],
)
def test_other_files_by_such_names_are_passed_over(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "requirements.txt").write_text(STACK)
    (tmp_path / name).write_text(text)
    assert json.loads(run("check", tmp_path, "--format", "json").out)["skipped"] == []


def test_lines_of_a_script_may_end_as_python_takes_them(tmp_path: Path) -> None:
    text = 'from trl import SFTTrainer, SFTConfig\rSFTTrainer(model="a/b", args=SFTConfig(bf16=True, max_length=8192)).train()\r'
    (tmp_path / "train.py").write_bytes(text.encode())
    assert facts(tmp_path)["training.sequence_length"] == 8192
