"""What expressions see of the facts."""

from __future__ import annotations

import pytest

from compatcheck.core.facts import Fact
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules(())


@pytest.mark.parametrize(
    ("origin", "declared"),
    [
        ("set", True),
        ("configuration", True),
        ("declared", True),
        ("installed", True),
        ("measured", True),
        ("model", False),
        ("derived", False),
    ],
)
def test_what_the_machine_says_counts_as_declared(rules: RuleSet, origin: str, declared: bool) -> None:  # noqa: FBT001
    fact = Fact("hardware.compute_capability", 7.0, origin)
    assert FactScope({fact.name: fact}, None, rules).declared(fact.name) is declared
