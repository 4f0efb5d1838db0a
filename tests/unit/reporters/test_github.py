"""Workflow commands: escaped as the runner reads them, worst first, the rest listed."""

from __future__ import annotations

import re

from hypothesis import given, settings

from compatcheck.core.source import Source
from compatcheck.core.summary import choose
from compatcheck.reporters.github import MAX_ANNOTATIONS, format_report
from tests.unit.reporters.drawn_reports import reports

COMMAND = re.compile(r"^::(error|warning|notice) ((?:\w+=[^,:]*)(?:,\w+=[^,:]*)*)::(.*)$")


def parse(line: str) -> tuple[str, dict[str, str], str] | None:
    """Read a line as the runner does."""
    match = COMMAND.match(line)
    if match is None:
        return None
    level, listed, message = match.groups()

    def plain(text: str) -> str:
        for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            text = text.replace(code, character)
        return text

    return (
        level,
        {name: plain(value) for name, _, value in (p.partition("=") for p in listed.split(","))},
        plain(message),
    )


@settings(max_examples=150)
@given(reports())
def test_no_text_becomes_a_command(report) -> None:
    expected = min(len(choose(report.findings).shown), MAX_ANNOTATIONS)
    if report.audit is not None:
        open_advisories = [item for item in report.audit.advisories if item.suppressed is None]
        shown = len({(item.id, item.package, item.version) for item in open_advisories})
        expected = min(expected + shown, MAX_ANNOTATIONS)
        expected += bool(report.audit.unaudited)
    expected += min(len(report.skipped), MAX_ANNOTATIONS)
    commands = 0
    for line in format_report(report).split("\n"):
        if line.lstrip().startswith("::"):
            assert parse(line) is not None
            commands += 1
        else:
            assert "##[" not in line
            assert "\r" not in line
    assert commands == expected


def test_message_survives_the_runner(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    finding = report.findings[0]._replace(title="100% of: a, b\n::error::no")
    line = format_report(report._replace(findings=(finding,))).splitlines()[0]
    parsed = parse(line)
    assert parsed is not None
    assert parsed[2].startswith("100% of: a, b\n::error::no (")


def test_place_is_the_line_in_the_checkout(case_reports, tmp_path, monkeypatch) -> None:
    (tmp_path / ".git").mkdir()
    below = tmp_path / "train"
    below.mkdir()
    (below / "ds,config.json").write_text("{}")
    monkeypatch.chdir(below)
    report = case_reports["openrlhf-llama3-70b"]
    places = (Source("--gpu"), Source("ds,config.json"), Source("ds,config.json", "stage", 7))
    finding = report.findings[0]._replace(locations=places)
    parsed = parse(format_report(report._replace(findings=(finding,))).splitlines()[0])
    assert parsed is not None
    assert parsed[1]["file"] == "train/ds,config.json"
    assert parsed[1]["line"] == "7"


def test_worst_come_first(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    base = report.findings[0]._replace(status="affected", fails=False, severity="low")
    findings = [base._replace(rule_id=f"a/low-{index}") for index in range(12)]
    findings.append(base._replace(rule_id="z/critical", severity="critical", fails=True))
    lines = format_report(report._replace(findings=tuple(findings))).splitlines()
    assert "z/critical" in lines[0]
    assert lines[MAX_ANNOTATIONS] == "3 more findings without an annotation:"
