"""Reports of the shipped cases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from drawn_reports import CASES, ROOT

from compatcheck.cli.checks import Checks
from compatcheck.cli.inputs import Request
from compatcheck.cli.policy import Plan, gather_all
from compatcheck.cli.run import build_report
from compatcheck.core.report import Report
from compatcheck.core.threshold import parse_threshold
from compatcheck.rules.locate import open_rules


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
