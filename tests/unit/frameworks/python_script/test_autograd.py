"""Functions with a backward of their own that modules of a script apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.python_script.test_changes import HEAD, TRAIN, read

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION = "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\n"


@pytest.mark.parametrize(
    ("more", "uses"),
    [
        ("class L(torch.nn.Linear):\n    def forward(self, x): return F.apply(x)\n", True),
        ("class L(torch.nn.Linear):\n    def forward(self, x): return x\n", False),
        ("def loss(x): return F.apply(x)\n", False),
    ],
)
def test_a_function_that_a_module_applies_is_read(tmp_path: Path, more: str, *, uses: bool) -> None:
    facts = read(tmp_path, HEAD + FUNCTION + more + TRAIN).roles["train"]
    assert ("run.uses_autograd_function" in facts) is uses
