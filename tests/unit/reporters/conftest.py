"""Reports of the shipped cases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compatcheck.checking.checks import Checks
from compatcheck.checking.report import build_report
from compatcheck.checking.request import Request
from compatcheck.checking.runs import Plan, gather_all
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.report import Report
from compatcheck.rules.locate import open_rules
from tests.unit.reporters.drawn_reports import CASES, ROOT


@pytest.fixture(scope="session")
def case_reports() -> dict[str, Report]:
    rules = open_rules()
    reports = {}
    directory = Path.cwd()
    os.chdir(ROOT)
    try:
        for case in CASES:
            plan = Plan((Request(paths=(str(case.relative_to(ROOT)),)),))
            gathered = gather_all(plan, rules, {})
            reports[case.name] = build_report(gathered, rules, Checks(), parse_threshold("medium"))
    finally:
        os.chdir(directory)
    return reports
