"""One run, one verdict: what is announced of a change is what the change gives, and every command says the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from compatcheck.checking import Request, check, estimate, open_rules
from compatcheck.checking.checks import Checks, open_criteria
from compatcheck.checking.estimates import EstimateOptions
from compatcheck.checking.fix import find_fix
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.verdict import Variants
from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.estimate import Estimate
from compatcheck.core.facts import Value
from compatcheck.core.fix import Change
from compatcheck.core.report import Report
from compatcheck.core.source import Source
from compatcheck.fixing.edits.text import apply_edits, read_exact
from compatcheck.fixing.plan import Ways
from compatcheck.memory.regressions import ADDED, find_deciding
from compatcheck.reporters.json import describe_report
from compatcheck.resolution.resolve import resolve_with
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import CompiledRule
from compatcheck.rules.expression import fact_names
from compatcheck.rules.values import list_values
from tests.cases.generated_runs import Run, draw_run

RULES = open_rules()
FEW = range(8)
MANY = range(8, 200)
SEEDS = [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)]


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return draw_run(request.param, tmp_path)


def ask(run: Run, *settings: str) -> Request:
    return Request(paths=(".",), gpu=run.gpu, here=False, settings=settings)


def look(run: Run, *settings: str) -> tuple[Report, Estimate | None]:
    report = check(ask(run, *settings), RULES, {})
    (subject,) = report.subjects
    return report, subject.estimate


def affected(report: Report) -> set[tuple[str, str]]:
    return {(one.rule_id, one.role) for one in report.findings if one.status == "affected"}


def remedies(report: Report) -> dict[tuple[str, str], list[str]]:
    return {(one.rule_id, one.role): [remedy.text for remedy in one.remedies] for one in report.findings}


def failing(report: Report) -> set[tuple[str, str]]:
    return {(one.rule_id, one.role) for one in report.findings if one.fails}


def move(run: Run, releases: Mapping[str, str]) -> None:
    """Write releases into the requirements, as a person would."""
    path = run.directory / "requirements.txt"
    text = path.read_text()
    for name, release in releases.items():
        text, count = re.subn(rf"(?m)^{re.escape(name)}==.*$", f"{name}=={release}", text)
        assert count == 1
    path.write_text(text)


def write(value: Value) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def apply(run: Run, changes: tuple[Change, ...]) -> tuple[Report, Estimate | None]:
    """Do what is printed: releases and settings into the files, what no file of the run states as ``--set``."""
    before = {path: path.read_text() for path in run.directory.iterdir()}
    edits = [edit for one in changes if one.release is None for edit in one.edits]
    for path, text in apply_edits({edit.path: read_exact(edit.path) for edit in edits}, edits).items():
        Path(path).write_text(text)
    move(run, {one.name: one.release or "" for one in changes if one.release is not None})
    settings = [option.removeprefix("--set ") for one in changes if not one.edits for option in one.options]
    try:
        return look(run, *settings)
    finally:
        for path, text in before.items():
            path.write_text(text)


@pytest.mark.parametrize("run", SEEDS, indirect=True)
def test_every_command_says_the_same(run: Run) -> None:
    report, found = look(run)
    (estimated,) = estimate(ask(run), RULES, {}).reports
    if found is not None:
        assert estimated.estimate == found
        assert ("_stack/run-does-not-fit" in {name for name, _ in failing(report)}) is (
            found.verdict.outcome == "does_not_fit"
        )
    assert report.exit_code == (1 if failing(report) else report.exit_code)
    inspection = as_inspection(ask(run))
    fix = find_fix(inspection, open_criteria(inspection, RULES, Checks()), {}, Ways(None))
    assert affected(fix.report) == affected(report)
    assert fix.report.subjects[0].estimate == found
    assert remedies(fix.report) == remedies(report)
    assert (fix.exit_code == 1) is bool(failing(report))
    if failing(report):
        names = [(change.name, change.value) for plan in fix.plans for change in plan.changes]
        assert names == [(change.name, change.value) for plan in report.plans for change in plan.changes]
    files = tuple(path.name for path in sorted(run.directory.iterdir()))
    hook = check(ask(run)._replace(paths=files, hook=True), RULES, {})
    assert (affected(hook), hook.exit_code) == (affected(report), report.exit_code)
    described = json.loads(json.dumps(describe_report(report)))
    assert described["summary"]["exit_code"] == report.exit_code
    assert {(one["rule_id"], one["role"]) for one in described["findings"] if one["fails"]} == failing(report)


@pytest.mark.parametrize("run", SEEDS, indirect=True)
def test_a_suggestion_gives_what_it_announces(run: Run) -> None:
    (report,) = estimate(ask(run), RULES, {}, EstimateOptions(suggest=True)).reports
    for suggestion in report.suggestions:
        after, found = apply(run, suggestion.changes)
        assert found is not None
        words = [change.words or f"{change.name} {change.after}" for change in suggestion.changes]
        assert (found.needed, found.verdict.outcome) == (suggestion.needed, suggestion.outcome), words
        assert not {name for name, _ in affected(after)} & set(suggestion.clears), words


@pytest.mark.parametrize("run", SEEDS, indirect=True)
def test_a_remedy_clears_its_finding_and_brings_in_none_that_fails(run: Run) -> None:
    report, _ = look(run)
    before = (run.directory / "requirements.txt").read_text()
    for finding in report.findings:
        for remedy in finding.remedies if finding.status == "affected" else ():
            if not (remedy.releases or remedy.settings):
                continue
            move(run, dict(remedy.releases))
            after, _ = look(run, *(f"{name}={write(value)}" for name, value in remedy.settings))
            (run.directory / "requirements.txt").write_text(before)
            assert (finding.rule_id, finding.role) not in affected(after), remedy.text
            assert failing(after) <= failing(report), remedy.text


@pytest.mark.parametrize("run", SEEDS, indirect=True)
def test_a_plan_clears_what_it_says_and_brings_in_none_that_fails(run: Run) -> None:
    report, _ = look(run)
    for plan in report.plans:
        after, found = apply(run, plan.changes)
        cleared = {(one.rule_id, one.role) for one in plan.cleared}
        assert failing(after) == failing(report) - cleared
        for _, announced in plan.outcomes:
            assert found is not None
            assert (found.needed, found.verdict.outcome) == (announced.needed, announced.verdict.outcome)


def ask_about(rule: CompiledRule) -> frozenset[str]:
    """Return the facts that decide a rule, or its size."""
    codes = (rule.when, rule.unless, RULES.texts(rule).sizes.expected, *(clause.when for clause in rule.clauses))
    return frozenset().union(*(fact_names(code) for code in codes if code is not None))


PRICED = [rule for rule in RULES.rules_about(RULES.packages) if rule.kind == "regression" or rule.id in ADDED]
DECIDING = frozenset().union(*map(ask_about, PRICED))
"""Facts that decide what is laid over an estimate."""


def hide(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """Yield the run with one of its settings hidden: given a value that nobody can tell, or left out of a facts file."""
    for document in subject.documents:
        for one in document.statements:
            if one.fact in DECIDING and one.fact is not None and list_values(one.fact):
                statements = tuple(other for other in document.statements if other.fact != one.fact)
                gone = (*document.unresolved, Unresolved(one.fact, one.key, "is not known", one.role))
                changed = document._replace(statements=statements, unresolved=gone)
                documents = tuple(changed if other is document else other for other in subject.documents)
                yield one.fact, resolve_with(subject._replace(documents=documents), {}, RULES)
    if len(subject.roles) > 1:
        return
    (facts,) = subject.roles.values()
    about = ("model.", "training.", "hardware.")
    kept = {name: one.value for name, one in facts.items() if name.startswith(about) and name != "training.framework"}
    for name in kept.keys() & DECIDING:
        if list_values(name):
            stated = tuple(Statement(other, other, value) for other, value in kept.items() if other != name)
            document = Document("native", Source("facts.yaml"), stated)
            yield name, resolve_with(subject._replace(documents=(document,), hardware=()), {}, RULES)


@pytest.mark.parametrize("run", SEEDS, indirect=True)
def test_no_run_fits_that_a_regression_decides_once_a_hidden_setting_is_stated(run: Run) -> None:
    inspection = as_inspection(ask(run))
    criteria = open_criteria(inspection, RULES, Checks())
    (subject,) = gather_all(inspection, RULES, {}).subjects
    judge = Variants(criteria)
    for name, hidden in hide(subject):
        estimate = judge(hidden).estimate
        if (
            estimate is None
            or estimate.verdict.outcome != "fits"
            or any(name in role for role in hidden.roles.values())
        ):
            continue
        for value in list_values(name):
            after = judge(resolve_with(hidden, {name: value}, RULES)).estimate
            assert after is None or not find_deciding(after), (name, value)
