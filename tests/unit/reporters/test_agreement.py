"""Every format of one run tells the same findings, counts and exit code."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import unescape

import pytest
from drawn_reports import CASES, reports
from hypothesis import HealthCheck, given, settings

from compatcheck.core.report import Report
from compatcheck.core.summary import closing_line, closing_lines, summarise
from compatcheck.reporters import github, junit, markdown, sarif, text
from compatcheck.reporters import json as json_reporter


def outcome(finding) -> tuple[str, str, str]:
    return finding.rule_id, finding.subject, "waived" if finding.suppressed else finding.status


def check_agreement(report: Report) -> None:
    wanted = sorted(map(outcome, report.findings))
    summary = summarise(report)

    data = json.loads(json_reporter.format_report(report))
    assert (
        sorted(
            (item["rule_id"], item["subject"], "waived" if item["suppressed"] else item["status"])
            for item in data["findings"]
        )
        == wanted
    )
    assert data["summary"]["exit_code"] == report.exit_code
    assert data["summary"]["findings"] == summary.findings
    assert data["summary"]["suppressed"] == summary.waived
    assert data["summary"]["not_checked"] == summary.not_checked
    assert data["summary"]["seconds"] == round(report.seconds, 3)
    assert data["database"] == {"id": report.database_id, "date": report.database_date, "rules": report.database_rules}

    run = json.loads(sarif.format_report(report))["runs"][0]
    assert (
        sorted(
            (
                item["ruleId"],
                item["properties"]["subject"],
                "waived" if "suppressions" in item else {"fail": "affected", "open": "possible"}[item["kind"]],
            )
            for item in run["results"]
        )
        == wanted
    )
    assert run["invocations"][0]["exitCode"] == report.exit_code
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == summary.not_checked
    prints = [item["partialFingerprints"]["compatcheckFinding/v1"] for item in run["results"]]
    assert prints == [item["fingerprint"] for item in data["findings"]]
    assert len(set(prints)) == len(prints)
    assert run["tool"]["driver"]["properties"]["database"] == data["database"]

    root = ET.fromstring(junit.format_report(report))  # noqa: S314 (our own)
    cases = [case for case in root.iter("testcase") if case.get("classname") != "not checked"]
    found = [
        case for case in cases if "/" in (case.get("name") or "") and not case.get("name", "").startswith("no known")
    ]
    assert sorted((case.get("name"), case.get("classname")) for case in found) == [item[:2] for item in wanted]
    assert root.get("failures") == str(summary.failing) == str(len(list(root.iter("failure"))))
    waived = [case for case in root.iter("skipped") if case.get("message", "").startswith("waived: ")]
    assert len(waived) == summary.waived
    values = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert values["exit_code"] == str(report.exit_code)
    assert (values["database_id"], values["database_date"]) == (report.database_id, report.database_date)

    page = unescape(markdown.format_report(report))
    rows = re.findall(r"^\| (?:info|low|medium|high|critical) \| \[?([^\]| ]+)", page, re.MULTILINE)
    assert sorted(rows) == [item[0] for item in wanted]
    assert page.count("<details>") == len(wanted)

    commands = github.format_report(report)
    annotations = re.findall(
        r"^::(?:error|warning|notice) .*title=(?:possible )?\w+ (pkg\d/\S+?|[\w.-]+/[\w.-]+)::", commands, re.MULTILINE
    )
    listed = re.findall(r"^(?:possible )?(?:info|low|medium|high|critical) (\S+/\S+) ", commands, re.MULTILINE)
    ignored = re.findall(r"^waived (\S+/\S+): ", commands, re.MULTILINE)
    assert len(annotations) == min(summary.findings, github.MAX_ANNOTATIONS)
    assert sorted([*annotations, *listed, *ignored]) == [item[0] for item in wanted]

    shown = text.format_report(report, verbose=0, quiet=True, color=False, width=80).splitlines()
    assert sorted(line.split()[1] for line in shown[: len(wanted)]) == [item[0] for item in wanted]
    closing = closing_line(report)
    ending = closing_lines(report, 80)
    assert shown[-len(ending) :] == ending
    assert commands.splitlines()[-1] == closing
    assert closing in "".join(root.itertext())
    assert run["properties"]["closing"] == closing


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_formats_agree_on_drawn_reports(report: Report) -> None:
    check_agreement(report)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_formats_agree_on_cases(case, case_reports) -> None:
    check_agreement(case_reports[case.name])


@settings(max_examples=50, deadline=None)
@given(reports())
def test_terminal_report_holds_every_certain_finding(report: Report) -> None:
    page = text.format_report(report, verbose=1, quiet=False, color=False, width=80)
    for finding in report.findings:
        assert finding.rule_id in page
