"""Every format of one run tells the same findings, counts and exit code."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import unescape

import pytest
from hypothesis import HealthCheck, given, settings
from markupsafe import escape

from compatcheck.core.headline import ending
from compatcheck.core.report import Report
from compatcheck.core.summary import choose, closing_line, closing_lines, summarise
from compatcheck.reporters import github, html, junit, markdown, sarif, text
from compatcheck.reporters import json as json_reporter
from tests.unit.reporters.drawn_reports import CASES, reports


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
    results = [item for item in run["results"] if "compatcheckFinding/v1" in item["partialFingerprints"]]
    notifications = run["invocations"][0]["toolExecutionNotifications"]
    assert (
        sorted(
            (
                item["ruleId"],
                item["properties"]["subject"],
                "waived" if "suppressions" in item else {"fail": "affected", "open": "possible"}[item["kind"]],
            )
            for item in results
        )
        == wanted
    )
    assert run["invocations"][0]["exitCode"] == report.exit_code
    assert sum(item["descriptor"]["id"] == "not-checked" for item in notifications) == summary.not_checked
    prints = [item["partialFingerprints"]["compatcheckFinding/v1"] for item in results]
    assert prints == [item["fingerprint"] for item in data["findings"]]
    assert len(set(prints)) == len(prints)
    assert run["tool"]["driver"]["properties"]["database"] == data["database"]

    root = ET.fromstring(junit.format_report(report))  # noqa: S314 (our own)
    cases = [case for case in root.iter("testcase") if case.get("classname") != "not checked"]
    found = [
        case for case in cases if "/" in (case.get("name") or "") and not case.get("name", "").startswith("no known")
    ]
    assert sorted((case.get("name"), case.get("classname")) for case in found) == [item[:2] for item in wanted]
    advisories = () if report.audit is None else report.audit.advisories
    failing = summary.failing + sum(item.fails for item in advisories)
    assert root.get("failures") == str(failing) == str(len(list(root.iter("failure"))))
    waived = [case for case in root.iter("skipped") if case.get("message", "").startswith("waived: ")]
    assert len(waived) == summary.waived + sum(item.suppressed is not None for item in advisories)
    values = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert values["exit_code"] == str(report.exit_code)
    assert (values["database_id"], values["database_date"]) == (report.database_id, report.database_date)

    choice = choose(report.findings)
    readable = sorted(item.rule_id for item in (*choice.shown, *(item for item in report.findings if item.suppressed)))
    assert [item["rule_id"] for item in data["findings"] if item["folded"]] == [
        item.rule_id for item in report.findings if item.folded
    ]

    page = unescape(markdown.format_report(report))
    rows = re.findall(r"^\| (?:info|low|medium|high|critical) \| \[?([^\]| ]+)", page, re.MULTILINE)
    assert sorted(rows) == readable
    assert page.count("<details>") == len(readable)

    commands = github.format_report(report)
    annotations = re.findall(
        r"^::(?:error|warning|notice) .*title=(?:possible |advice )?\w+ (pkg\d/\S+?|[\w.-]+/[\w.-]+)::",
        commands,
        re.MULTILINE,
    )
    listed = re.findall(
        r"^ *(?:possible |advice )?(?:info|low|medium|high|critical) (\S+/\S+)(?: |$)", commands, re.MULTILINE
    )
    ignored = re.findall(r"^waived (\S+/\S+): ", commands, re.MULTILINE)
    assert len(annotations) == min(len(choice.shown), github.MAX_ANNOTATIONS)
    assert sorted([*annotations, *listed, *ignored]) == readable

    shown = text.format_report(report, verbose=0, quiet=True, color=False, width=80).splitlines()
    told = []
    for subject in report.subjects:
        own = [item for item in report.findings if item.subject == subject.id]
        told += [item.rule_id for item in (*choose(own).shown, *(item for item in own if item.suppressed))]
    labelled = re.compile(r"^ *(?:[A-Z]+|(?:POSSIBLE|ADVICE) \(\w+\)) (\S+/\S+)(?: |$)")
    lines = [found[1] for line in shown if (found := labelled.match(line)) and not line.startswith("ADVISORY")]
    assert sorted(lines) == sorted(told)
    closing = closing_line(report)
    end = [*closing_lines(report, 80), *text.fill(ending(report), 80)]
    assert shown[-len(end) :] == end
    assert commands.splitlines()[-2:] == [closing, ending(report)]
    assert closing in "".join(root.itertext())
    shown_page = html.format_report(report)
    ids = re.findall(r'<details class="finding [^"]*" id="f-([^"]+)"', shown_page)
    assert sorted(ids) == sorted(prints)
    assert [f"<p>{escape(line)}</p>" in shown_page for line in (closing, ending(report))] == [True, True]
    assert run["properties"]["closing"] == closing


def check_audit(report: Report) -> None:
    data = json.loads(json_reporter.format_report(report))
    run = json.loads(sarif.format_report(report))["runs"][0]
    root = ET.fromstring(junit.format_report(report))  # noqa: S314 (our own)
    pages = {
        "markdown": unescape(markdown.format_report(report)),
        "github": github.format_report(report),
        "html": unescape(html.format_report(report)),
        "text": text.format_report(report, verbose=0, quiet=False, color=False, width=80),
        "quiet": text.format_report(report, verbose=0, quiet=True, color=False, width=80),
    }
    shown = [item for item in run["results"] if "compatcheckAdvisory/v1" in item["partialFingerprints"]]
    suites = [suite for suite in root.iter("testsuite") if suite.get("name") == "security"]
    if report.audit is None:
        assert (data["audit"], data["advisories"], shown, suites) == (None, [], [], [])
        assert "\n### Security\n" not in pages["markdown"]
        return
    wanted = sorted((item.id, item.package, item.subject, item.fails) for item in report.audit.advisories)
    assert (
        sorted((item["id"], item["package"], item["subject"], item["fails"]) for item in data["advisories"]) == wanted
    )
    places = (item["properties"] | {"id": item["ruleId"]} for item in shown)
    assert sorted((item["id"], item["package"], item["subject"], item["fails"]) for item in places) == wanted
    ids = [
        case.get("name", "").split()[0] for case in suites[0].iter("testcase") if case.get("classname") != "not audited"
    ]
    assert sorted(ids) == [item[0] for item in wanted] or not wanted
    for name in {item.id for item in report.audit.advisories}:
        assert all(name in page for page in pages.values()), name
    gaps = [case for case in suites[0].iter("testcase") if case.get("classname") == "not audited"]
    kinds = [item["descriptor"]["id"] for item in run["invocations"][0]["toolExecutionNotifications"]]
    reasons = {item.reason for item in report.audit.unaudited}
    assert len(gaps) == kinds.count("not-audited") == len(reasons)
    assert len(data["audit"]["not_audited"]) == len(report.audit.unaudited)
    # The lists are per subject; the summary counts a file that is checked for several machines once.
    stated = {(item.package, item.version, item.source) for item in report.audit.unaudited}
    assert data["summary"]["not_audited"] == len(stated)
    if report.audit.unaudited:
        # Of a package nobody could look up, no format says that it is clean.
        assert not any(case.tag == "passed" for case in gaps)
        assert "not audited" in pages["markdown"]
        assert "not audited" in pages["github"]
        assert "not audited" in pages["html"]
        assert "NOT AUDITED" in pages["quiet"]
        assert "not audited" in closing_line(report)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_formats_tell_the_same_audit(report: Report) -> None:
    check_audit(report)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_formats_agree_on_drawn_reports(report: Report) -> None:
    check_agreement(report)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_formats_agree_on_cases(case, case_reports) -> None:
    check_agreement(case_reports[case.name])


@settings(max_examples=50)
@given(reports())
def test_terminal_report_holds_every_certain_finding(report: Report) -> None:
    page = text.format_report(report, verbose=1, quiet=False, color=False, width=80)
    for finding in report.findings:
        assert finding.rule_id in page
