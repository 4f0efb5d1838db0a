"""Each incident under ``fixtures/cases`` says what its ``expected.yaml`` promises; other rules may speak as well."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from compatcheck.checking import Request, check
from compatcheck.core.units import GIB
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT

CASES = sorted(path.parent for path in (ROOT / "fixtures/cases").glob("*/expected.yaml"))


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_reports_what_it_promises(case: Path, rules: RuleSet) -> None:
    expected = yaml.safe_load((case / "expected.yaml").read_text(encoding="utf-8"))
    report = check(Request(paths=(str(case),)), rules, {})
    found = {finding.rule_id: finding for finding in report.findings}
    status = {
        name: found[name].status if name in found else "silent"
        for kind in ("findings", "possible", "silent")
        for name in expected[kind]
    }
    wanted = {"findings": "affected", "possible": "possible", "silent": "silent"}
    assert status == {name: wanted[kind] for kind in wanted for name in expected[kind]}
    for name, (low, high) in expected["impact_gib"].items():
        impact = found[name].impact
        assert impact is not None
        assert low * GIB <= impact.expected_bytes <= high * GIB
