"""Reports of the shipped cases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compatcheck.checking import Request, check
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
            reports[case.name] = check(Request(paths=(str(case.relative_to(ROOT)),)), rules, {})
    finally:
        os.chdir(directory)
    return reports
