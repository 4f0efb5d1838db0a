"""How a place is named."""

import pytest

from compatcheck.core.source import Source


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Source("dpo.yaml"), "dpo.yaml"),
        (Source("dpo.yaml", "beta", 3), "dpo.yaml:3 (beta)"),
        (Source("dpo.yaml", "(path of this file)"), "dpo.yaml (path of this file)"),
        (Source("a\nb", "\n::error::x", 3), "a\\u000ab:3 (\\u000a::error::x)"),
        (Source("训练.yaml", "学习率"), "训练.yaml (学习率)"),
    ],
)
def test_a_place_has_one_pair_of_parentheses(source, text):
    assert str(source) == text
