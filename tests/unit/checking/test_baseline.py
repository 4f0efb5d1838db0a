"""A report of before is laid over that of now: what entered stays, what stood is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.checking.baseline import read_baseline
from compatcheck.checking.checks import Checks
from compatcheck.checking.report import check
from compatcheck.checking.request import Request
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.report import Report
from compatcheck.reporters.json import format_report
from compatcheck.rules.locate import open_rules

FACTS = (
    "compatcheck: 1\nmodel: llama-3-70b\n"
    "training: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\n"
)
RULE = "deepspeed/zero3-params-kept-in-backward"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("deepspeed==0.16.4\n???\n")
    Path("facts.yaml").write_text(FACTS)
    return tmp_path


def judge(**checks: object) -> Report:
    return check(Request(paths=(".",), here=False), open_rules(), {}, Checks(fail_unread=True, **checks))  # type: ignore[arg-type]


def keep() -> str:
    Path("baseline.json").write_text(format_report(judge()))
    return "baseline.json"


def rules(report: Report) -> set[str]:
    return {finding.rule_id for finding in report.findings}


def test_what_stood_before_is_counted_and_fails_no_more() -> None:
    before = judge()
    assert before.exit_code == 1
    now = judge(baseline=keep())
    assert (now.findings, now.skipped, now.plans) == ((), (), ())
    assert (now.stood_before, now.exit_code) == (len(before.findings), 0)
    Path("requirements.txt").write_text("\n\ndeepspeed==0.16.4\n???\n")  # lines move
    assert judge(baseline="baseline.json").exit_code == 0


def test_what_enters_is_reported() -> None:
    Path("facts.yaml").write_text(FACTS.replace("zero_stage: 3", "zero_stage: 2"))
    now_known = keep()
    Path("facts.yaml").write_text(FACTS)
    now = judge(baseline=now_known)
    assert RULE in rules(now)
    assert now.exit_code == 1
    assert now.plans


def test_what_becomes_certain_enters() -> None:
    Path("facts.yaml").write_text(FACTS.replace("use_reentrant: false, ", ""))
    known = keep()
    assert next(one for one in judge().findings if one.rule_id == RULE).status == "possible"
    Path("facts.yaml").write_text(FACTS)
    assert RULE in rules(judge(baseline=known))


def test_what_cannot_be_read_since_is_unread() -> None:
    known = keep()
    Path("more-requirements.txt").write_text("torch==2.6.0\n!!!\n")
    now = judge(baseline=known)
    assert now.exit_code in {1, 4}
    assert {entry.source.path for entry in now.skipped} == {"more-requirements.txt"}


def test_a_subject_that_was_renamed_is_known() -> None:
    known = keep()
    Path("facts.yaml").rename("run.yaml")
    assert RULE not in rules(judge(baseline=known))
    Path("facts.yaml").write_text(FACTS)  # a further one is not
    assert RULE in rules(judge(baseline=known))


def test_what_is_no_report_is_refused() -> None:
    for text in ("{}", "[]", '{"subjects": [1], "findings": [], "advisories": [], "skipped": []}'):
        Path("other.json").write_text(text)
        with pytest.raises(UsageError, match="is no JSON report of a check"):
            read_baseline("other.json")
    with pytest.raises(InputError):
        read_baseline("missing.json")


def test_a_waiver_that_ended_lets_a_finding_enter() -> None:
    known = keep()
    text = Path(known).read_text()
    assert judge(baseline=known).exit_code == 0
    report = json.loads(text)
    for finding in report["findings"]:
        finding |= {"fails": False}
    Path(known).write_text(json.dumps(report))
    assert judge(baseline=known).exit_code == 0, "as --fail-on never writes it"
    for finding in report["findings"]:
        finding |= {"suppressed": {"reason": "x"}}
    Path(known).write_text(json.dumps(report))
    assert judge(baseline=known).exit_code == 1
