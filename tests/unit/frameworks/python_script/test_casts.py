"""A script that casts what it trains to float32 says so, where it surely does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.python_script.test_changes import HEAD, TRAIN, read

if TYPE_CHECKING:
    from pathlib import Path

WRAP = "model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj']))\n"


@pytest.mark.parametrize(
    ("loop", "casts"),
    [
        ("for p in model.parameters():\n    if p.requires_grad:\n        p.data = p.data.float()\n", True),
        ("for p in model.parameters():\n    if p.requires_grad: p.data = p.to(torch.float32)\n", True),
        (
            "for n, p in model.named_parameters():\n    if p.requires_grad: p.data = p.data.to(dtype=torch.float32)\n",
            True,
        ),
        ("for p in model.parameters():\n    p.data = p.float()\n", True),
        ("for p in filter(lambda p: p.requires_grad, model.parameters()):\n    p.data = p.data.float()\n", True),
        (
            "for p in model.parameters():\n    if not p.requires_grad:\n        pass\n    else: p.data = p.float()\n",
            True,
        ),
        (
            "from peft.utils import cast_mixed_precision_params\ncast_mixed_precision_params(model, torch.float16)\n",
            True,
        ),
        ("for p in model.parameters():\n    if not p.requires_grad: p.data = p.data.float()\n", False),
        ("for n, p in model.named_parameters():\n    if 'norm' in n: p.data = p.data.float()\n", False),
        ("for p in model.parameters():\n    if p.requires_grad: p.data = p.data.to(torch.float16)\n", False),
        ("for p in other.parameters():\n    p.data = p.data.float()\n", False),
        ("if wanted:\n    for p in model.parameters():\n        p.data = p.data.float()\n", False),
    ],
)
def test_a_loop_that_casts_what_is_trained_is_read(tmp_path: Path, loop: str, *, casts: bool) -> None:
    facts = read(tmp_path, HEAD + WRAP + loop + TRAIN).roles["train"]
    for name in ("program.trained_dtype", "program.adapter_dtype"):
        assert facts[name].value == "float32" if casts else name not in facts, name
    whole = read(tmp_path, HEAD + loop + TRAIN).roles["train"]
    assert ("program.trained_dtype" in whole) is casts


def test_a_cast_in_front_of_adapters_is_none_of_them(tmp_path: Path) -> None:
    loop = "for p in model.parameters():\n    p.data = p.data.float()\n"
    assert "program.adapter_dtype" not in read(tmp_path, HEAD + loop + WRAP + TRAIN).roles["train"]
