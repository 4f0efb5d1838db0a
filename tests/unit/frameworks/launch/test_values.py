"""Words of a command are read as the types of argparse read them."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.launch.values import read_scalar


@pytest.mark.parametrize(("text", "value"), [("\x1c2", 2), ("\x1c2.5", 2.5), ("\x1ftrue", True), (" 1e-3 ", 0.001)])
def test_what_python_takes_for_a_blank_is_one(text: str, value: object) -> None:
    """`str.strip` takes the separators of ASCII away, and `int` and `float` do not."""
    assert read_scalar(text) == value
