"""What a text report ends with: the closing line in 80 columns, and waivers that ended whatever is left out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from compatcheck.core.report import Report, SubjectReport
from compatcheck.core.summary import closing_line, closing_lines
from compatcheck.reporters import text
from tests.unit.reporters.drawn_reports import reports

EMPTY = Report(
    version="1",
    database_id="0123456789ab",
    database_date="2026-11-21",
    database_rules=136,
    subjects=(
        SubjectReport(
            *("env", "env", None, (("torch", "2.6.0", "METADATA"),)),
            facts=(),
            unread_keys=(),
            conflicts=(),
            unresolved=(),
            folded=(),
        ),
    ),
    findings=(),
    skipped=(),
    exit_code=0,
    threshold="medium",
    strict=False,
)


def show(report: Report, *, quiet: bool, width: int = 80) -> list[str]:
    return text.format_report(report, verbose=0, quiet=quiet, color=False, width=width).splitlines()


@pytest.mark.parametrize("quiet", [True, False])
def test_the_end_fits_the_terminal(quiet: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    lines = show(EMPTY._replace(policy="pyproject.toml", seconds=12.345), quiet=quiet)
    assert lines[-3:] == [
        "compatcheck: 0 findings, 0 waived, 0 not checked",
        "  db 2026-11-21 (136 rules, 0123456789ab) · policy pyproject.toml · 12.35 s",
        "exit 0: nothing at or above --fail-on medium",
    ]


BARE = EMPTY._replace(subjects=(EMPTY.subjects[0]._replace(packages=()),))


@pytest.mark.parametrize("report", [BARE, BARE._replace(subjects=BARE.subjects * 5), BARE._replace(subjects=())])
@pytest.mark.parametrize("quiet", [True, False])
def test_where_no_package_is_known_nothing_was_checked(report: Report, *, quiet: bool) -> None:
    lines = show(report, quiet=quiet, width=100)
    assert lines[-2].startswith("compatcheck: nothing was checked · db ")
    assert lines[-1] == "exit 0: no package is known"
    assert "no known problem" not in "".join(lines)
    if report.subjects and not quiet:
        assert "nothing was checked" in "".join(lines[:-1])


def test_one_bare_subject_of_many_is_counted_apart() -> None:
    lines = show(EMPTY._replace(subjects=EMPTY.subjects * 4 + BARE.subjects), quiet=False)
    assert [line.strip() for line in lines if line.startswith("  none")] == [
        "none     no known problem in 4 of 5",
        "none     nothing was checked in 1 of 5: no package is known",
    ]


def test_a_wide_terminal_has_one_line() -> None:
    assert show(EMPTY, quiet=False, width=100)[-2] == closing_line(EMPTY)


@settings(max_examples=100)
@given(reports())
def test_nothing_is_lost_on_the_way(report: Report) -> None:
    report = report._replace(policy=None)
    lines = closing_lines(report, 80)
    assert all(len(line) <= 80 for line in lines)
    assert re.sub(r"[\s·]+", " ", " ".join(lines)) == re.sub(r"[\s·]+", " ", closing_line(report))


def test_a_waiver_that_ended_is_said_in_a_quiet_report() -> None:
    note = "compatcheck.toml:3: the waiver of a/b expired on 2026-01-01 and no longer covers a/b"
    assert show(EMPTY._replace(waiver_notes=(note,)), quiet=True)[0] == f"WAIVER {note}"
