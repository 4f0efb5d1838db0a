"""What would clear the findings: a diff and its reasons for a terminal, for a pull request, and as JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from compatcheck.core.errors import EXIT_UNREADABLE_INPUT
from compatcheck.core.fix import NOT_NEEDED, SETTING
from compatcheck.core.headline import open_lines
from compatcheck.reporters.json import describe_finding, describe_origin
from compatcheck.reporters.markdown import escape, table
from compatcheck.reporters.plan import (
    PlanWriter,
    change_text,
    describe_change,
    describe_outcomes,
    describe_resolution,
    effect_text,
    list_places,
    outcome_text,
    resolution_text,
    shorten,
)
from compatcheck.reporters.text import fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.fix import Change, Fix, Plan


def format_text(fix: Fix, diff: str, *, quiet: bool, verbose: int, color: bool, width: int) -> str:
    """Format an outcome for a terminal: the diff as it is, then what it clears and what stays."""
    writer = PlanWriter(color=color, width=width, verbose=verbose)
    lines = [] if quiet else [line for plan in fix.plans for line in writer.plan(plan, applied=fix.applied)]
    shown = "".join(writer.diff(diff))
    body = "\n".join([*lines, *fill(closing_line(fix), width)]) + "\n"
    return f"{shown}\n{body}" if shown else body


def closing_line(fix: Fix) -> str:
    """Say in one line what was found, cleared and left, and by how much work."""
    report = fix.report
    failing = sum(finding.fails for finding in report.findings)
    tail = f"db {report.database_date} ({report.database_rules} rules) · {fix.seconds:.2g} s"
    if not failing and not fix.plans:
        if report.exit_code == EXIT_UNREADABLE_INPUT:
            unread = "; ".join(open_lines(report)[:1])
            return f"compatcheck: not checked whole: {unread} · nothing to fix in the rest · {tail}"
        return f"compatcheck: nothing to fix at --fail-on {report.threshold} · {tail}"
    waiting = sum(len(plan.waiting) for plan in fix.plans)
    cleared = sum(len(plan.cleared) for plan in fix.plans) - waiting
    sought = failing or cleared + waiting + sum(len(plan.remaining) for plan in fix.plans)
    what = "finding" if failing else "piece of advice" if sought == 1 else "pieces of advice"
    files = len(fix.files)
    done = "written" if fix.applied else "to be changed"
    unsafe = any(not change.safe for plan in fix.plans for change in plan.changes)
    more = " · --apply needs --unsafe" if unsafe and not fix.applied else ""
    asked = f" · the resolver was asked {fix.resolutions} times" if fix.resolutions else ""
    plural = "s" if failing and sought != 1 else ""
    changed = f"{files} file{'s' if files != 1 else ''} {done}"
    by_hand = f", {waiting} more once the rest is done by hand" if waiting else ""
    return f"compatcheck: {cleared} of {sought} {what}{plural} cleared{by_hand}, {changed}{more}{asked} · {tail}"


def format_markdown(fix: Fix, diff: str) -> str:
    """Format an outcome for a pull request."""
    return "\n".join(_markdown(fix, diff)) + "\n"


def _markdown(fix: Fix, diff: str) -> Iterator[str]:
    yield "## compatcheck fix"
    yield ""
    yield escape(closing_line(fix))
    yield ""
    if diff:
        fence = "`" * (1 + max([2, *map(len, re.findall("`+", diff))]))
        yield from (f"{fence}diff", diff.rstrip("\n"), fence, "")
    for plan in fix.plans:
        yield f"### {escape(plan.subjects[0])}"
        yield ""
        if plan.changes:
            yield from table(("change", "costs", "clears", "where"), map(_cells, plan.changes))
        if plan.resolution.verdict != NOT_NEEDED:
            yield from (f"Resolver: {escape(resolution_text(plan.resolution))}.", "")
        for finding, why in plan.remaining:
            yield f"- stays: `{finding.rule_id}`: {escape(shorten(why))}"
        yield from (f"- then: {outcome_text(estimate)}" for _, estimate in plan.outcomes)
        if plan.remaining or plan.outcomes:
            yield ""


def _cells(change: Change) -> tuple[str, ...]:
    where = escape(change.command or ", ".join(list_places(change) if change.kind == SETTING else change.places))
    return escape(change_text(change)), escape(effect_text(change)), escape(", ".join(change.clears)), where


def format_json(fix: Fix, diff: str) -> str:
    """Format an outcome as JSON."""
    report = fix.report
    return (
        json.dumps(
            {
                **describe_origin(report),
                "diff": diff,
                "plans": [describe_plan(plan) for plan in fix.plans],
                "summary": {
                    "failing": sum(finding.fails for finding in report.findings),
                    "cleared": sum(len(plan.cleared) - len(plan.waiting) for plan in fix.plans),
                    "files": [file.path for file in fix.files],
                    "applied": fix.applied,
                    "fail_on": report.threshold,
                    "strict": report.strict,
                    "exit_code": fix.exit_code,
                    "evaluations": fix.evaluations,
                    "resolutions": fix.resolutions,
                    "seconds": round(fix.seconds, 3),
                },
            },
            indent=2,
            ensure_ascii=False,
        )
        + "\n"
    )


def describe_plan(plan: Plan) -> dict[str, object]:
    """Describe a plan as plain data."""
    return {
        "subjects": list(plan.subjects),
        "changes": [describe_change(change) for change in plan.changes],
        "files": [{"path": file.path, "written_by": file.written_by} for file in plan.files],
        "resolution": describe_resolution(plan.resolution),
        "cleared": [describe_finding(finding) for finding in plan.cleared],
        "waiting": [finding.rule_id for finding in plan.waiting],
        "remaining": [{"finding": describe_finding(finding), "reason": why} for finding, why in plan.remaining],
        "brings": list(plan.brings),
        "outcomes": describe_outcomes(plan),
        "exhausted": plan.exhausted,
        "notes": list(plan.notes),
    }
