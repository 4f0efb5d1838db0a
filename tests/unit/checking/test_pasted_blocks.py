"""Whether a text that speaks of exhausted memory holds something that can be checked."""

from __future__ import annotations

import pytest

from compatcheck.checking.pasted_blocks import holds_inputs


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('{\n // out of memory with 2\n "train_micro_batch_size_per_gpu": 1\n}\n', True),
        ("$ pip install torch==2.6.0 trl==0.17.0  # else out of memory\n", True),
        ("lora_rank: 8 # more is out of memory\n", True),
        ("FROM vllm/vllm-openai:v0.8.5\n# out of memory\n", True),
        ("I did pip install trl, and it is out of memory\n", False),
        ("{ it is out of memory\n", False),
    ],
)
def test_what_can_be_checked(text, holds) -> None:
    assert holds_inputs(text.encode()) is holds
