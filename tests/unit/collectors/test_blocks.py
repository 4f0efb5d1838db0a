"""Blocks of code in a pasted text: what they hold, where they stand, and what is none."""

from __future__ import annotations

import tracemalloc

import pytest

from compatcheck.collectors.reports.blocks import find_blocks
from compatcheck.core.pasted_text import may_start_program

FENCE = "```"


def fenced(language: str, body: str, before: str = "") -> str:
    lines = [f"{FENCE}{language}", *body.splitlines(), FENCE]
    return "It dies.\n\n" + "".join(f"{before}{line}\n" for line in lines) + "Thanks!\n"


@pytest.mark.parametrize(
    ("language", "body", "suffix"),
    [
        ("yaml", "stage: sft\ncutoff_len: 4096", ".yaml"),
        ("", "stage: sft\ncutoff_len: 4096\n# a remark\nbf16: true", ".yaml"),
        ("json", '{"zero_optimization": {"stage": 3}}', ".json"),
        ("", '{\n  "zero_optimization": {"stage": 3}\n}', ".json"),
        ("bash", "torchrun --nproc_per_node 8 train.py", ".sh"),
        ("text", "CUDA_VISIBLE_DEVICES=0 accelerate launch sft.py --bf16 True", ".sh"),
        ("", "vllm serve Qwen/Qwen2.5-7B --max-num-seqs 64", ".sh"),
    ],
)
def test_a_block_is_a_file_with_the_lines_of_the_text(language, body, suffix) -> None:
    (block,) = find_blocks(fenced(language, body), "issue.md")
    assert block.path == f"issue.md (block at line 4){suffix}"
    assert block.content.decode() == "\n" * 3 + body + "\n"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("Error executing job with overrides: ['a.b=1', 'data.train_batch_size=16']", False),
        ("[rank0]: Traceback (most recent call last):\n  File 'a.py', line 1", False),
        ("INFO 12-16 02:38:24 model_runner.py:1077] Loading model weights took 38.5 GB", False),
        ("torchrun a.py --bf16\nTraceback (most recent call last):\n  x", True),
        ("$ python a.py --bf16\nValueError: x", True),
    ],
)
def test_a_log_between_fences_of_a_shell_is_no_script(body, kept) -> None:
    assert bool(find_blocks(fenced("bash", body), "issue.md")) is kept


@pytest.mark.parametrize("before", ["> ", ">> ", "  ", "    "])
def test_quotation_and_indentation_are_removed(before) -> None:
    body = "training:\n  batch: 2\n"
    (block,) = find_blocks(fenced("yaml", body, before), "issue.md")
    assert block.content.decode().lstrip("\n") == body


def test_of_a_session_the_commands_are_kept_with_their_lines() -> None:
    body = "$ export A=1\nprinted\n$ torchrun \\\n    train.py\nprinted too"
    (block,) = find_blocks(fenced("console", body), "issue.md")
    assert block.content.decode() == "\n\n\nexport A=1\n\ntorchrun \\\n    train.py\n\n"


@pytest.mark.parametrize(
    "text",
    [
        "no block at all",
        f"{FENCE}yaml\nstage: sft\n",
        fenced("rust", "x = 1"),
        fenced("", "Traceback (most recent call last):\n  File: x"),
        fenced("", "- `transformers` version: 4.49.0\n- PyTorch version (GPU?): 2.6.0 (True)"),
        fenced("", "torch: 2.6.0\ntransformers: 4.49.0"),
        fenced("", "It was fine before.\nThen it was not."),
    ],
)
def test_what_is_cut_off_or_is_no_configuration_is_none(text) -> None:
    assert find_blocks(text, "issue.md") == ()


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("torchrun --nproc_per_node 8 train.py", 3),
        ("$ deepspeed --num_gpus 8 \\\n    train.py --bf16", 3),
        ("#!/bin/bash\nexport A=1\n\nN=8\npython3 -m verl.trainer.main_ppo actor.lr=1 --x", 3),
        ("+ CUDA_VISIBLE_DEVICES=0 /opt/venv/bin/accelerate launch sft.py", 3),
        ("vllm serve Qwen/Qwen2.5-7B --max-num-seqs 64", 3),
        ("torchrun \\\n    --nproc_per_node 8 train.py", 3),
    ],
)
def test_a_command_without_a_fence_is_a_block(body, line) -> None:
    text = f"It dies with torch 2.5.1.\n\n{body}\n\nThanks!\n"
    assert may_start_program(text.encode())
    (block,) = find_blocks(text, "issue.md")
    assert block.path == f"issue.md (block at line {line}).sh"
    kept = block.content.decode().strip()
    assert not kept.startswith(("$", "+"))
    assert body.strip("$+ ").endswith(kept.splitlines()[-1])


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed==0.16.4\ntorch >=2.5\nray 2.9.3\n",
        "I use deepspeed and python for this; accelerate launch is fine\n",
        "the python program that I run with torchrun\n",
    ],
)
def test_words_about_programs_are_no_commands(text) -> None:
    assert find_blocks(text, "issue.md") == ()


def test_where_a_fence_holds_the_command_the_prose_is_not_asked() -> None:
    text = "torchrun a.py --x\n\n" + fenced("bash", "torchrun b.py --y")
    assert [block.content.decode().strip() for block in find_blocks(text, "issue.md")] == ["torchrun b.py --y"]


STATED = "### model\nmodel_name_or_path: Qwen/Qwen2-72B-Instruct\n\n### method\nstage: sft\nfinetuning_type: lora\nbf16: true\n"


@pytest.mark.parametrize(
    "body",
    [
        STATED,
        STATED.replace("_path: Q", "_path:Q"),
        STATED.replace("_path: Qwen", "_path:~"),
        STATED + "datasets:\n  - path: x\n    type: alpaca\n",
    ],
)
def test_a_configuration_is_found_without_a_fence(body) -> None:
    """LlamaFactory#4311: the whole of it pasted between sentences; in one line the blank behind the key is gone."""
    (block,) = find_blocks(
        f"- PEFT version: 0.11.1\n\nI run this:\n{body}The error:\nCUDA out of memory.\n", "issue.md"
    )
    assert block.path == "issue.md (block at line 5).yaml"
    kept = body.removeprefix("### model\n").replace("_path:Q", "_path: Q").replace("_path:~", "_path: ~")
    assert block.content.decode() == "\n" * 4 + kept


@pytest.mark.parametrize(
    "text",
    [
        "title: a\nabout: b\nname: c\nlabels: d\n",
        "train_loss: 1\nsteps: 2\n",
        "Some prose: and more\nmodel_name: x\n\nthen text\nbatch_size: 2\n",
        "see_this:https://example.org/a\nsee_that:https://example.org/b\nand_this:https://example.org/c\nand_that:https://example.org\n",
        f"{STATED}\n{FENCE}yaml\nstage: sft\ncutoff_len: 4096\n{FENCE}\n",
    ],
)
def test_a_few_words_with_colons_are_no_configuration(text) -> None:
    assert not any("block at line 1)" in block.path for block in find_blocks(text, "issue.md"))


SWIFT = (
    "MODEL=Qwen/Qwen2.5-3B\nDATA=a/b#50\n\n    CUDA_VISIBLE_DEVICES=0,1 \\\n    NPROC_PER_NODE=2 \\\n"
    "    swift rlhf \\\n        --model $MODEL\n"
)


def test_a_command_behind_any_number_of_assignments_is_a_script() -> None:
    """ms-swift#4486."""
    (block,) = find_blocks(fenced("", SWIFT), "issue.md")
    assert block.path.endswith(".sh")


HEREDOC = (
    "set -x\n\nread -r -d '' commands <<EOF\nopenrlhf.cli.train_ppo \\\n   --zero_stage 2\nEOF\n\n"
    'if [[ ${1} != "slurm" ]]; then\n    deepspeed --module $commands\nfi\n'
)


def test_a_script_that_reads_its_command_from_a_document_is_found_whole() -> None:
    """OpenRLHF#398, pasted below the message without a fence."""
    (block,) = find_blocks(f"It dies.\n\ntrain.sh\n\n{HEREDOC}", "issue.md")
    assert block.content.decode().strip() == HEREDOC.strip()


@pytest.mark.parametrize("cut", ["", "\n\nread -r -d '' words <<EOF\nmodel=a"], ids=["continued", "document"])
def test_a_command_before_the_cut_of_a_text_is_found(cut) -> None:
    (block,) = find_blocks(f"It dies.\n\ntorchrun --nproc-per-node 2 train.py \\{cut}", "issue.md")
    assert block.path == "issue.md (block at line 3).sh"


def test_what_a_document_of_the_shell_holds_is_no_command() -> None:
    assert (
        find_blocks("Usage:\n\nread -r -d '' help <<EOF\ntorchrun --nproc-per-node 2 train.py\nEOF\n", "issue.md") == ()
    )


OBJECT = '{\n  "zero_optimization": {"stage": 2},\n  "train_micro_batch_size_per_gpu": 1\n}\n'


def test_an_object_of_several_lines_is_found_without_a_fence() -> None:
    found = find_blocks(f"My config:\n\n{OBJECT}\nand {{this}} is none\n{{nor this}}\n{{\n", "issue.md")
    assert [(one.path, one.content.decode()) for one in found] == [("issue.md (block at line 3).json", "\n\n" + OBJECT)]


def test_a_fence_around_one_configuration_hides_none_of_another_kind() -> None:
    text = f"I run this:\n{STATED}\nwith\n{FENCE}json\n{OBJECT}{FENCE}\n"
    assert [one.path.rpartition(".")[2] for one in find_blocks(text, "issue.md")] == ["json", "yaml"]
    twice = f"I run this:\n{FENCE}yaml\n{STATED}{FENCE}\nwith\n{OBJECT}\nand again\n{STATED}\n"
    assert [one.path.rpartition(".")[2] for one in find_blocks(twice, "issue.md")] == ["yaml", "json"]


CODE = (
    "from trl import SFTConfig, SFTTrainer\n\nargs = SFTConfig(\n    bf16=True,\n    max_length=4096,\n)\n"
    "for part in parts:\n    train(part)\nSFTTrainer(args=args).train()\n"
)


@pytest.mark.parametrize("fence", [f"{FENCE}python\n", f"{FENCE}\n", ""])
def test_code_is_found_with_and_without_a_fence(fence) -> None:
    close = f"{FENCE}\n" if fence else ""
    text = f"I import (a lot) of this:\n{fence}{CODE}{close}Then it dies (always).\n"
    (block,) = find_blocks(text, "issue.md")
    assert (block.path.endswith(".py"), block.content.decode().strip("\n")) == (True, CODE.strip("\n"))


@pytest.mark.parametrize("line", ["import x", "torchrun x.py --a", "a_b: 1\nc: 1\nd: 1\ne: 1"])
def test_of_many_blocks_no_more_are_made_than_are_kept(line) -> None:
    text = f"{line}\nSome prose here.\n" * 5000
    tracemalloc.start()
    try:
        assert len(find_blocks(text, "issue.md")) == 32
        assert tracemalloc.get_traced_memory()[1] < 12e6
    finally:
        tracemalloc.stop()
