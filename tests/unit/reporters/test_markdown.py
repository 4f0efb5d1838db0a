"""Markdown: within the limit of a job summary, and no text of an input turns into markup."""

from __future__ import annotations

from hypothesis import given, settings

from compatcheck.core.summary import choose, closing_line
from compatcheck.reporters import markdown
from compatcheck.reporters.markdown import LIMIT_BYTES, format_report
from tests.unit.reporters.drawn_reports import reports


def test_texts_are_shown_as_they_are(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    finding = report.findings[0]._replace(title="<img src=x> | [a](b) `c` @team")
    text = format_report(report._replace(findings=(finding,)))
    assert "<img" not in text
    assert "@team" not in text
    row = next(line for line in text.splitlines() if "&#60;img" in line)
    assert row.count("|") == 6


def test_long_report_is_cut_with_a_pointer(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    many = tuple(report.findings[0]._replace(message="x" * 50_000) for _ in range(100))
    text = format_report(report._replace(findings=many))
    assert len(text.encode()) <= LIMIT_BYTES
    assert "more findings are left out; `--output json:FILE`" in text
    assert text.count("<details>") + int(text.split("The details of ")[1].split()[0]) == 100


def test_endless_table_is_cut_with_a_pointer(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    many = tuple(report.findings[0]._replace(title="é" * 1000) for _ in range(1000))
    text = format_report(report._replace(findings=many))
    assert len(text.encode()) <= LIMIT_BYTES
    assert "cut off here" in text
    assert text.rstrip().endswith(markdown.escape(closing_line(report._replace(findings=many))))


@settings(max_examples=60)
@given(reports())
def test_tables_have_even_rows(report) -> None:
    text = format_report(report)
    width = None
    for line in text.splitlines():
        if line.startswith("|"):
            count = line.count("|")
            assert width in (None, count)
            width = count
        else:
            width = None
    assert (
        text.count("<details>")
        == text.count("</details>")
        == len(choose(report.findings).shown) + len([item for item in report.findings if item.suppressed is not None])
    )
