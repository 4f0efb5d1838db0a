"""What the estimate says of each incident and of what its thread tried: ``estimate`` in ``expected.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from compatcheck.checking import Request, gather
from compatcheck.core.estimate import Estimate
from compatcheck.memory.job import estimate_job
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT

CASES = ROOT / "fixtures/cases"
ROWS = [
    (path.parent, number, row)
    for path in sorted(CASES.glob("*/expected.yaml"))
    for number, row in enumerate(yaml.safe_load(path.read_text(encoding="utf-8")).get("estimate", []))
]


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def price(case: Path, changes: dict[str, Any], rules: RuleSet) -> Estimate:
    settings = tuple(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in changes.items()
    )
    (subject,) = gather(Request(paths=(str(case),), settings=settings, here=False), rules, {}).subjects
    return estimate_job(subject.roles, subject.environment)


@pytest.mark.parametrize(("case", "number", "row"), ROWS, ids=[f"{case.name}-{number}" for case, number, _ in ROWS])
def test_estimate_of_an_incident(case: Path, number: int, row: dict[str, Any], rules: RuleSet) -> None:
    found = price(case, row.get("set", {}), rules)
    verdict = found.verdict
    if row.get("unchanged"):
        assert found.device == price(case, {}, rules).device
        return
    assert verdict.outcome in row["outcome"], number
    for words in row.get("cause", ()):
        assert words in str(verdict.primary)
    for name in ("contributing", "ruled_out"):
        for words in row.get(name, ()):
            assert any(words in text for text in getattr(verdict, name)), (words, getattr(verdict, name))
    for name in row.get("unmodelled", ()):
        assert name in {left.name for left in found.unmodelled}
    if row.get("too_much"):
        assert verdict.margin_bytes is not None
        assert verdict.margin_bytes < 0
