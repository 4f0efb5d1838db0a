"""Every rule under settings beside the usual, as stored."""

from __future__ import annotations

import pytest

from compatcheck.rules.locate import open_rules
from tests.rules.setting_matrix import active_rules, cells, read_matrix, read_settings

RULES = {rule.id: rule for rule in active_rules()}


def test_every_rule_has_a_row() -> None:
    stored = read_matrix()
    assert stored.keys() == RULES.keys(), "python -m tests.rules.setting_matrix"
    assert {len(row) for row in stored.values()} == {len(read_settings())}, "python -m tests.rules.setting_matrix"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_row_is_what_the_rule_says(name: str) -> None:
    differ = [
        f"{setting}: {old} became {new} ({found})"
        for (setting, new, found), old in zip(cells(RULES[name], open_rules()), read_matrix()[name], strict=True)
        if old != new
    ]
    assert differ == [], "python -m tests.rules.setting_matrix"
