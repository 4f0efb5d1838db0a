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


HEALTHY = "deepspeed==0.16.8\n"


def lay_out(**folders: str) -> None:
    """Write lists into folders, the first with the run."""
    Path("requirements.txt").unlink(missing_ok=True)
    for number, (folder, text) in enumerate(folders.items()):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "requirements.txt").write_text(text)
        if number == 0:
            Path("facts.yaml").rename(Path(folder, "facts.yaml"))


@pytest.mark.parametrize("text", ["# none\n", "", "--index-url https://x.invalid/simple\n"])
def test_a_list_that_states_nothing_any_more_is_not_read(text: str) -> None:
    lay_out(a=HEALTHY, b=HEALTHY)
    known = keep()
    Path("b/requirements.txt").write_text(text)
    now = judge(baseline=known)
    assert [(str(entry.source), entry.named) for entry in now.skipped] == [("b/requirements.txt", True)]
    assert now.exit_code == 4
    Path("c").mkdir()
    Path("c/requirements.txt").write_text(text)  # that never stated anything
    Path("b/requirements.txt").write_text(HEALTHY)
    assert judge(baseline=known).exit_code == 0


@pytest.mark.parametrize("name", [None, "a/stack.lst", "c/requirements.txt"])
def test_a_run_whose_list_is_gone_is_not_read(name: str | None) -> None:
    lay_out(a=HEALTHY, b=HEALTHY)
    known = keep()
    moved = Path("a/requirements.txt")
    if name is None:
        moved.unlink()
    else:
        Path(name).parent.mkdir(exist_ok=True)
        moved.rename(name)
        Path(name).write_text("deepspeed==0.16.4\n")
    now = judge(baseline=known)
    assert [entry.reason for entry in now.skipped] == [
        "no package is known of this run any more; before it was a: requirements.txt + facts.yaml"
    ]
    assert now.exit_code == 4
    Path("a/facts.yaml").unlink()  # the run is gone with its list
    assert judge(baseline=known).exit_code == 0


def test_a_run_that_enters_without_a_list_was_not_checked() -> None:
    lay_out(a=HEALTHY, b=HEALTHY)
    known = keep()
    Path("c").mkdir()
    Path("c/facts.yaml").write_text(FACTS)
    Path("b/requirements.txt").unlink()
    now = judge(baseline=known)
    assert [(str(entry.source), entry.reason.partition(":")[0]) for entry in now.skipped] == [
        ("c/facts.yaml", "a run that no rule could be checked on")
    ]
    assert now.exit_code == 4
    Path("b/requirements.txt").write_text(HEALTHY)
    assert judge(baseline=keep()).exit_code == 0  # nor was it before


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
