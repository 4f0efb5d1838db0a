"""Measured rules with a formula name the measurements that the formula was compared with."""

from __future__ import annotations

import pytest

from compatcheck.rules.load import load_rules
from tests import ROOT

MEASURED = {rule.id: rule for rule in load_rules(ROOT / "rules") if rule.confidence == "measured"}


@pytest.mark.parametrize("name", sorted(name for name, rule in MEASURED.items() if rule.impact.expected is not None))
def test_a_measured_formula_is_compared(name: str) -> None:
    assert MEASURED[name].comparisons
