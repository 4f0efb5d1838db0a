"""JSON: every report keeps the published schema."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given, settings

from compatcheck.core.facts import ORIGINS
from compatcheck.core.report import SEVERITIES
from compatcheck.reporters.json import format_report
from compatcheck.rules import rule
from tests.unit.reporters.drawn_reports import CASES, reports
from tests.unit.reporters.strict_schemas import require_strict

SCHEMA = json.loads((files("compatcheck.reporters") / "report.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def test_schema_is_sound_and_strict() -> None:
    require_strict(SCHEMA, objects=21)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_keep_the_schema(case, case_reports) -> None:
    VALIDATOR.validate(json.loads(format_report(case_reports[case.name])))


@settings(max_examples=100)
@given(reports())
def test_drawn_reports_keep_the_schema(report) -> None:
    VALIDATOR.validate(json.loads(format_report(report)))


def test_schema_knows_the_words_of_rules() -> None:
    finding = SCHEMA["$defs"]["finding"]["properties"]
    impact = finding["impact"]["oneOf"][1]["properties"]
    assert finding["severity"]["enum"] == list(SEVERITIES)
    assert finding["kind"]["enum"] == [kind for kind in rule.KINDS if kind != "folklore"]
    assert finding["confidence"]["enum"] == list(rule.CONFIDENCES)
    assert impact["effect"]["enum"] == list(rule.EFFECTS)
    assert impact["memory"]["enum"] == list(rule.MEMORIES)
    assert impact["scope"]["enum"] == list(rule.SCOPES)
    assert impact["phase"]["enum"] == list(rule.PHASES)
    assert SCHEMA["$defs"]["fact"]["properties"]["origin"]["enum"] == list(ORIGINS)
    assert finding["remedies"]["items"]["properties"]["safety"]["enum"] == list(rule.SAFETIES)
