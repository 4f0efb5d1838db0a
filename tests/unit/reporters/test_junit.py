"""JUnit: the schema of Jenkins where it is at hand, and the counts servers rely on."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings

from compatcheck.reporters.junit import format_report
from tests.unit.reporters.drawn_reports import CASES, reports

SCHEMA_VARIABLE = "JUNIT_XSD"
"""Path of junit-10.xsd of the Jenkins xUnit plugin."""

ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped"},
    "testcase": {"name", "time", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "property": {"name", "value"},
    "properties": set(),
    "system-out": set(),
}
"""Elements and attributes that junit-10.xsd allows and that are written."""


def check(text: str, tmp_path) -> None:
    root = ET.fromstring(text)  # noqa: S314 (our own)
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
    for suite in root.iter("testsuite"):
        cases = list(suite.iter("testcase"))
        assert cases
        assert suite.get("tests") == str(len(cases))
        for plural, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(plural) == str(len(list(suite.iter(name))))
    for plural in ("tests", "failures", "errors"):
        assert root.get(plural) == str(sum(int(suite.get(plural, "0")) for suite in root.iter("testsuite")))
    if os.environ.get(SCHEMA_VARIABLE):
        xmlschema = pytest.importorskip("xmlschema")
        path = tmp_path / "junit.xml"
        path.write_text(text, encoding="utf-8")
        xmlschema.XMLSchema(os.environ[SCHEMA_VARIABLE]).validate(str(path))


@settings(max_examples=60)
@given(report=reports())
def test_drawn_reports_are_well_formed(tmp_path_factory, report) -> None:
    check(format_report(report), tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_are_well_formed(case, case_reports, tmp_path) -> None:
    check(format_report(case_reports[case.name]), tmp_path)


def test_junitparser_reads_it(case_reports) -> None:
    junitparser = pytest.importorskip("junitparser")
    report = case_reports["openrlhf-llama3-70b"]
    suites = junitparser.JUnitXml.fromstring(format_report(report).encode())
    assert (suites.tests, suites.failures, suites.errors) == (
        len(report.findings),
        sum(finding.fails for finding in report.findings),
        0,
    )


def test_report_without_findings_has_a_passing_case(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]._replace(findings=(), exit_code=0)
    root = ET.fromstring(format_report(report))  # noqa: S314 (our own)
    (case,) = root.iter("testcase")
    assert not list(case)
    assert (case.get("name") or "").startswith("no known problem")


def test_subject_without_packages_did_not_pass(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]._replace(findings=(), exit_code=3)
    report = report._replace(subjects=tuple(subject._replace(packages=()) for subject in report.subjects))
    root = ET.fromstring(format_report(report))  # noqa: S314 (our own)
    assert root.get("errors") == "1"
    assert all(list(case) for case in root.iter("testcase"))


def test_report_without_subjects_is_an_error(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]._replace(findings=(), subjects=(), exit_code=3)
    root = ET.fromstring(format_report(report))  # noqa: S314 (our own)
    assert root.get("errors") == "1"
