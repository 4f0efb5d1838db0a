"""A command line without a command: text and files are answered by the command that they are for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

THREAD = "Llama-3-8B on one A100-80GB\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1002.00 MiB.\n"


def run(*arguments: str, folder: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    hidden = {"FORCE_COLOR", "COLUMNS", "VIRTUAL_ENV", "CONDA_PREFIX"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [sys.executable, "-m", "compatcheck", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),
        capture_output=True,
        text=True,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> tuple[int, list[str], str]:
    return done.returncode, [line for line in done.stdout.splitlines() if "db 20" not in line], done.stderr


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (THREAD, "oom"),
        ("deepspeed==0.16.4\n", "check"),
        ("nothing of the kind\n", "check"),
        ("two A6000, and it runs out of memory\n(WorkerDict pid=8) After vllm offload: 20.73 GB / 47.53 GB.\n", "oom"),
        ("my run is OOM on 8 A100\n", "oom"),
        ("lora_rank: 8 # more is out of memory\n", "check"),
        ("torch==2.6.0  # out of memory before\n", "check"),
        ("$ pip install torch==2.6.0 deepspeed==0.16.4  # else out of memory\n", "check"),
    ],
)
def test_text_is_answered_by_its_command(tmp_path: Path, text: str, command: str) -> None:
    named = run(command, "-", folder=tmp_path, text=text)
    assert said(run(folder=tmp_path, text=text)) == said(run("-", folder=tmp_path, text=text)) == said(named)


@pytest.mark.parametrize("text", ["", None])
def test_without_text_there_is_a_sentence(tmp_path: Path, text: str | None) -> None:
    done = run(folder=tmp_path, text=text)
    hint = "  `compatcheck --help` shows both\n"
    assert done.stderr == f"error: nothing on standard input, and no command or file\n{hint}"
    assert (done.returncode, done.stdout) == (2, "")


def test_files_are_answered_by_their_command(tmp_path: Path) -> None:
    (tmp_path / "thread.txt").write_text(THREAD)
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ndeepspeed==0.16.4\n")
    explained = run("oom", "thread.txt", "requirements.txt", "--gpu", "A100-80GB", folder=tmp_path)
    for names in (("requirements.txt", "thread.txt"), ("thread.txt", "requirements.txt")):
        assert said(run(*names, "--gpu", "A100-80GB", folder=tmp_path)) == said(explained)
    assert said(run("requirements.txt", folder=tmp_path)) == said(run("check", "requirements.txt", folder=tmp_path))
    assert said(run(".", folder=tmp_path)) == said(run("check", ".", folder=tmp_path))
    mixed = run("-", "requirements.txt", "--gpu", "A100-80GB", folder=tmp_path, text=THREAD)
    assert mixed.stdout == explained.stdout.replace("thread.txt", "<stdin>")


def test_a_word_that_is_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    done = run("chekc", folder=tmp_path)
    assert (done.returncode, "No such command or file 'chekc'. Did you mean 'check'?" in done.stderr) == (2, True)
    assert run("env", "--prefix", "env", folder=tmp_path).stderr != run("./env", folder=tmp_path).stderr


def test_a_thread_without_fences_is_read(tmp_path: Path) -> None:
    thread = (
        "I train with transformers 4.48.3、deepspeed 0.16.4 and it is slow.\n\n"
        "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B --zero_stage 3 \\\n"
        "   --gradient_checkpointing --bf16 --micro_train_batch_size 2 --max_len 4096\n\nAny idea?\n"
    )
    done = run("--gpu", "8xA100-80GB", folder=tmp_path, text=thread)
    assert done.returncode == 1
    assert "HIGH deepspeed/zero3-params-kept-in-backward" in done.stdout, done.stdout
    assert "version unknown" not in done.stdout.replace("openrlhf: version unknown", "").replace(
        "torch: version unknown", ""
    )


def test_options_may_stand_alone_or_before_the_command(tmp_path: Path) -> None:
    done = run("--model", "llama-3-8b", folder=tmp_path, text=THREAD)
    assert said(done) == said(run("oom", "-", "--model", "llama-3-8b", folder=tmp_path, text=THREAD))
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n")
    before = run("--lang", "zh", "check", "requirements.txt", folder=tmp_path)
    after = run("check", "requirements.txt", "--lang", "zh", folder=tmp_path)
    assert before.stdout.splitlines()[:8] == after.stdout.splitlines()[:8]
    assert run("-v", "check", "requirements.txt", folder=tmp_path).returncode == 0
    assert run("--model", "llama-3-8b", folder=tmp_path).returncode == 2
    assert run("--nonsense", folder=tmp_path, text="").stderr.count("No such option") == 1


def test_a_configuration_between_the_words_of_a_letter_is_read(tmp_path: Path) -> None:
    letter = (
        "person · description · 2026-04-08\n### Reminder\n\n- [x] I have read the rules.\n\nIs this normal?\n\n"
        "### model\nmodel_name_or_path: Qwen/Qwen2.5-7B\n\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
        'lora_target: ["q_proj", "v_proj"]\ncutoff_len: 2048\nper_device_train_batch_size: 1\nbf16: true\nthat is all\n'
    )
    done = run("estimate", "-", "--gpu", "2xL40S", folder=tmp_path, text=letter)
    assert done.stdout.startswith("Qwen/Qwen2.5-7B, 1 × 2,048 tokens, lora, 2 × L40S"), done.stdout
    assert "not valid YAML" not in done.stdout + done.stderr


def test_an_object_between_words_is_the_file_that_a_configuration_names(tmp_path: Path) -> None:
    letter = (
        "- [x] I have read the rules.\n\nIs this normal?\n\nmodel_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\n"
        "do_train: true\nfinetuning_type: full\ncutoff_len: 2048\ndeepspeed: mine.json\nbf16: true\n\nand the other\n\n"
        '{\n  "bf16": {"enabled": true},\n  "zero_optimization": {"stage": 2, "reduce_bucket_size": 3e8}\n}\n'
    )
    done = run("facts", "-", folder=tmp_path, text=letter)
    assert "mine.json:17 (zero_optimization.stage)" in " ".join(done.stdout.split()), done.stdout
    assert "no such file" not in done.stdout + done.stderr


@pytest.mark.parametrize("fence", ["```python\n", ""])
def test_code_in_a_thread_states_what_the_message_is_held_against(tmp_path: Path, fence: str) -> None:
    close = "```\n" if fence else ""
    thread = (
        f"It dies with transformers 4.53.0 and trl 0.19.0:\n\n{fence}from trl import SFTConfig, SFTTrainer\n"
        'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
        "args = SFTConfig(output_dir='x', per_device_train_batch_size=4, max_length=4096, bf16=True)\n"
        f"SFTTrainer(model=model, args=args, train_dataset=ds).train()\n{close}\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB. GPU 0 has a total capacity of 79.15 GiB.\n"
    )
    said = " ".join(run("--gpu", "A100-80GB", folder=tmp_path, text=thread).stdout.split())
    assert "fp32 logits [4, 4096, 152064] = [micro_batch_size, sequence_length, vocab_size]" in said
    assert "solved for" not in said
