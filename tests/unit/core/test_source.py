"""How a place is named."""

import pytest

from compatcheck.core.source import Source


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Source("dpo.yaml"), "dpo.yaml"),
        (Source("dpo.yaml", "beta", 3), "dpo.yaml:3 (beta)"),
        (Source("dpo.yaml", "(path of this file)"), "dpo.yaml (path of this file)"),
    ],
)
def test_a_place_has_one_pair_of_parentheses(source, text):
    assert str(source) == text
