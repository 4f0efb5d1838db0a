"""SARIF: the official schema where it is at hand, and what code hosts ask for beyond it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings

from compatcheck.core.report import Finding
from compatcheck.core.source import Source
from compatcheck.core.suppression import Suppression
from compatcheck.reporters.sarif import best_reference, describe_log, format_report, physical_location
from tests import ROOT
from tests.unit.reporters.drawn_reports import CASES, REFERENCES, reports

SCHEMA_VARIABLE = "SARIF_SCHEMA"
"""Path of sarif-schema-2.1.0.json as OASIS publishes it; it may not be copied into this repository."""

ALLOWED = {
    "log": {"$schema", "version", "runs"},
    "run": {"tool", "columnKind", "originalUriBaseIds", "invocations", "results", "properties"},
    "driver": {"name", "semanticVersion", "rules", "properties"},
    "rule": {
        "id",
        "shortDescription",
        "fullDescription",
        "help",
        "helpUri",
        "defaultConfiguration",
        "properties",
    },
    "result": {
        "ruleId",
        "ruleIndex",
        "kind",
        "level",
        "message",
        "locations",
        "partialFingerprints",
        "properties",
        "suppressions",
    },
    "invocation": {
        "executionSuccessful",
        "exitCode",
        "toolExecutionNotifications",
        "toolConfigurationNotifications",
    },
}
"""Properties of SARIF 2.1.0 that are written; the schema allows no others."""


def check_structure(log: dict) -> None:
    assert set(log) == ALLOWED["log"]
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert set(run) <= ALLOWED["run"]
    assert set(run["tool"]["driver"]) <= ALLOWED["driver"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) <= ALLOWED["rule"]
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
        assert rule["defaultConfiguration"]["level"] in {"note", "warning", "error"}
    for result in run["results"]:
        assert set(result) <= ALLOWED["result"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["kind"] == "fail") == (result["level"] != "none")
        assert result["locations"]
        for location in result["locations"]:
            if "physicalLocation" in location:
                artifact = location["physicalLocation"]["artifactLocation"]
                assert artifact["uri"].startswith("file:///") == ("uriBaseId" not in artifact)
    for invocation in run["invocations"]:
        assert set(invocation) <= ALLOWED["invocation"]


def official_schema() -> dict | None:
    path = os.environ.get(SCHEMA_VARIABLE)
    return json.loads(Path(path).read_text(encoding="utf-8")) if path else None


@settings(max_examples=60)
@given(reports())
def test_drawn_reports_are_well_formed(report) -> None:
    log = json.loads(format_report(report))
    check_structure(log)
    schema = official_schema()
    if schema is not None:
        jsonschema.Draft7Validator(schema).validate(log)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_are_well_formed(case, case_reports) -> None:
    log = json.loads(format_report(case_reports[case.name]))
    check_structure(log)
    schema = official_schema()
    if schema is not None:
        jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)


def test_official_schema_is_used() -> None:
    if official_schema() is None:
        pytest.skip(f"{SCHEMA_VARIABLE} does not name sarif-schema-2.1.0.json")


def test_places_are_relative_to_the_checkout(tmp_path) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "a folder"
    folder.mkdir()
    file = folder / "ds%.json"
    file.write_text("{}")
    location = physical_location(Source(str(file), "stage", 3), str(tmp_path))
    assert location == {
        "artifactLocation": {"uri": "a%20folder/ds%25.json", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 3},
    }
    assert physical_location(Source("--gpu"), str(tmp_path)) is None


def test_places_outside_the_checkout_are_absolute(tmp_path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "site-packages"
    inside.mkdir()
    outside.mkdir()
    location = physical_location(Source(str(outside)), str(inside))
    assert location == {"artifactLocation": {"uri": outside.as_uri()}}


def test_log_says_nothing_about_the_machine(case_reports, monkeypatch) -> None:
    root = ROOT
    monkeypatch.chdir(root)
    assert str(root) not in format_report(case_reports["openrlhf-llama3-70b"])


def test_help_links_to_the_fix() -> None:
    best = best_reference(REFERENCES)
    assert best is not None
    assert best.type == "FIX"
    assert best_reference(()) is None


def test_waived_finding_is_suppressed(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    waived: Finding = report.findings[0]._replace(
        suppressed=Suppression("agreed", "2027-01-31", owner="infra"), fails=False
    )
    log = describe_log(report._replace(findings=(waived,)), "/")
    (result,) = log["runs"][0]["results"]
    assert result["suppressions"] == [
        {
            "kind": "external",
            "status": "accepted",
            "justification": "agreed",
            "properties": {"expires": "2027-01-31", "owner": "infra"},
        },
    ]


def test_impact_is_told_in_bytes(case_reports) -> None:
    log = describe_log(case_reports["openrlhf-llama3-70b"], "/")
    sizes = {result["ruleId"]: result["properties"]["impact"]["expectedBytes"] for result in log["runs"][0]["results"]}
    assert sizes["deepspeed/zero3-params-kept-in-backward"] == 2 * 68_452_352_000
