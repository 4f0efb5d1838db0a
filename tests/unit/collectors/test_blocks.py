"""Blocks of code in a pasted text: what they hold, where they stand, and what is none."""

from __future__ import annotations

import pytest

from compatcheck.collectors.reports.blocks import find_blocks

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
        fenced("python", "x = 1"),
        fenced("", "Traceback (most recent call last):\n  File: x"),
        fenced("", "- `transformers` version: 4.49.0\n- PyTorch version (GPU?): 2.6.0 (True)"),
        fenced("", "torch: 2.6.0\ntransformers: 4.49.0"),
        fenced("", "It was fine before.\nThen it was not."),
    ],
)
def test_what_is_cut_off_or_is_no_configuration_is_none(text) -> None:
    assert find_blocks(text, "issue.md") == ()
