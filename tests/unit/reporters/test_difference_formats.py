"""A comparison as text, Markdown and JSON."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given, settings
from referencing import Registry, Resource

from compatcheck.core.difference import Difference
from compatcheck.core.estimate import Component, Estimate, Phase, Size, Verdict
from compatcheck.core.report import Report
from compatcheck.core.units import GIB
from compatcheck.matching.difference import compare
from compatcheck.reporters.difference import format_json, format_markdown, format_text
from tests.unit.reporters.drawn_reports import reports
from tests.unit.reporters.strict_schemas import require_strict


def load(name: str):
    return json.loads((files("compatcheck.reporters") / name).read_text(encoding="utf-8"))


SCHEMA = load("difference.schema.json")
REPORT_SCHEMA = load("report.schema.json")
VALIDATOR = jsonschema.Draft202012Validator(
    SCHEMA,
    registry=Registry().with_resource(REPORT_SCHEMA["$id"], Resource.from_contents(REPORT_SCHEMA)),
    format_checker=jsonschema.FormatChecker(),
)


def only_first_subject(report: Report) -> Report:
    first = report.subjects[0]
    return report._replace(
        subjects=(first,), findings=tuple(finding for finding in report.findings if finding.subject == first.id)
    )


def compared(before: Report, after: Report) -> Difference:
    return compare(("HEAD~1:uv.lock", "uv.lock"), only_first_subject(before), only_first_subject(after), {"deepspeed"})


def text_of(difference: Difference, **settings: int | bool) -> str:
    return format_text(difference, **{"verbose": 0, "quiet": False, "color": False, "width": 80, **settings})


def test_schema_is_sound_and_strict() -> None:
    require_strict(SCHEMA, objects=9)


@settings(max_examples=30)
@given(reports(), reports())
def test_any_comparison_keeps_the_schema(before: Report, after: Report) -> None:
    VALIDATOR.validate(json.loads(format_json(compared(before, after))))


@settings(max_examples=30)
@given(reports(), reports())
def test_every_format_names_what_newly_fails(before: Report, after: Report) -> None:
    difference = compared(before, after)
    text, quiet, markdown = text_of(difference), text_of(difference, quiet=True), format_markdown(difference)
    for change in difference.findings:
        if change.newly_fails:
            assert change.finding.rule_id in text
            assert change.finding.rule_id in quiet
            assert change.finding.rule_id in markdown
    counts = {kind: len(difference.of_kind(kind)) for kind in ("entered", "left", "stayed")}
    closing = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    assert closing in " ".join(text.split())
    assert closing in quiet
    assert closing in markdown
    assert json.loads(format_json(difference))["summary"].items() >= counts.items()


@settings(max_examples=30)
@given(reports(), reports())
def test_markdown_tables_keep_their_columns(before: Report, after: Report) -> None:
    columns = 0
    for line in format_markdown(compared(before, after)).split("\n"):
        if line.startswith("|"):
            columns = columns or line.count("|")
            assert line.count("|") == columns
        else:
            columns = 0


def estimate(gib: int) -> Estimate:
    part = Component("weights", "parameters", Size(gib * GIB, gib * GIB, gib * GIB), "f", "s")
    return Estimate("traced", (Phase("backward", "train", (part,)),), Verdict("fits", None, None))


@pytest.mark.parametrize("show", [text_of, format_markdown])
def test_traced_peaks_are_shown_with_what_was_added(show, case_reports) -> None:
    report = next(iter(case_reports.values()))
    difference = compared(report, report)._replace(peaks=(estimate(10), estimate(14)))
    assert "10.0 GiB → 14.0 GiB (+4.00 GiB)" in show(difference).replace("&#126;", "~")
    VALIDATOR.validate(json.loads(format_json(difference)))
    assert "Peak" not in format_markdown(difference._replace(peaks=None))


def test_the_cases_fit_eighty_columns_and_break_no_command(case_reports) -> None:
    several = list(case_reports.values())
    for before, after in zip(several, [*several[1:], several[0]], strict=True):
        lines = text_of(compared(before, after)).splitlines()
        wide = [line.strip() for line in lines if len(line) > 80 and " " in line.strip()]
        assert [line for line in wide if not line.startswith("pip install ")] == []
