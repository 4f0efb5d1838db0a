"""The answer of a report in a few lines."""

from __future__ import annotations

from compatcheck.core.facts import Fact
from compatcheck.core.headline import ending, headline
from compatcheck.core.report import Finding, FindingImpact, FindingRemedy, Report, SubjectReport
from compatcheck.core.source import Skipped, Source
from compatcheck.core.summary import MAX_POSSIBLE, choose
from tests.unit.reporters.test_closing import EMPTY
from tests.unit.reporters.test_folding import finding as make

GIB = 2**30


def report(*findings: Finding) -> Report:
    code = 1 if any(finding.fails for finding in findings) else 0
    return EMPTY._replace(findings=findings, exit_code=code)


def failing(rule_id: str, severity: str, size: int | None) -> Finding:
    remedy = FindingRemedy("upgrade deepspeed to 0.16.8", None, "safe")
    written = Fact("deepspeed", "0.16.4", "installed", (Source("requirements.txt", None, 4),))
    return make(rule_id, "env", severity, size)._replace(fails=True, remedies=(remedy,), facts=(written,))


def test_the_worst_comes_first_with_its_size_and_what_to_change() -> None:
    lines = headline(report(failing("a/small", "medium", GIB), failing("a/large", "high", 58 * GIB)))
    assert lines == [
        "FAILS: 2 findings at or above --fail-on medium",
        "worst: high a/large, 58.0 GiB per rank: upgrade deepspeed to 0.16.8 (requirements.txt:4)",
    ]


def test_the_cause_stands_before_the_verdict_on_the_run() -> None:
    run = failing("_stack/run-does-not-fit", "critical", 90 * GIB)
    run = run._replace(facts=(Fact("estimate.verdict", "does_not_fit", "derived", ()),))
    assert "worst: critical _stack/run-does-not-fit" in headline(report(run))[1]
    cause = failing("a/large", "critical", GIB)._replace(rating="the run fits without this")
    assert "worst: critical a/large" in headline(report(run, cause))[1]
    assert "worst: critical _stack/run-does-not-fit" in headline(report(run, failing("a/other", "high", GIB)))[1]


def test_the_last_line_is_the_exit_code_with_its_reason() -> None:
    assert ending(report()) == "exit 0: nothing at or above --fail-on medium"
    assert ending(report(failing("a/large", "high", 58 * GIB))) == (
        "exit 1: 1 finding at or above --fail-on medium; worst: high a/large, 58.0 GiB per rank"
    )


def test_advice_stands_after_what_fails() -> None:
    advice = make("a/advice", "env", "high", 9 * GIB)._replace(advice=True)
    shown = choose([advice, make("a/low", "env", "low", 1), failing("a/fails", "medium", 1)]).shown
    assert [finding.rule_id for finding in shown] == ["a/fails", "a/low", "a/advice"]


def test_possible_ones_come_by_what_they_could_cost_and_a_few_are_shown() -> None:
    sizes = (None, 1, 7 * GIB, 3 * GIB, None)
    found = [
        make(f"a/{index}", "env", size=size, status="possible", needs=("training.peft",))
        for index, size in enumerate(sizes)
    ]
    choice = choose(found)
    assert [finding.rule_id for finding in choice.shown] == ["a/2", "a/3", "a/1"]
    assert len(choice.shown) == MAX_POSSIBLE
    assert choice.rest == "2 more depend on other facts that are not known"
    assert len(choose(found, every=True).shown) == len(found)


def test_what_is_left_out_is_counted_with_what_would_decide_it() -> None:
    needs = (("run.outputs_kept",), ("model.model_type",), ("hardware.driver",))
    found = [make(f"a/{index}", "env", status="possible", needs=need) for index, need in enumerate(needs)]
    choice = choose([found[0]._replace(folded=True), *found[1:]])
    assert choice.shown == ()
    assert choice.rest == "3 more depend: 1 on what no file states, or programs not seen here, 2 on --driver, --model"


def test_what_costs_nothing_is_counted() -> None:
    impact = FindingImpact(0, 0, 0, "memory", "device", "rank", "whole")
    free = make("a/free", "env", "info")._replace(impact=impact, folded=True)
    assert choose([free]) == ((), "1 costs less than 1 MiB here")


def test_what_is_dear_and_only_counted_is_not_called_cheap() -> None:
    impact = FindingImpact(GIB, GIB, GIB, "memory", "device", "rank", "step")
    dear = make("a/dear", "env", "info")._replace(impact=impact, folded=True)
    unsized = make("a/unsized", "env", "info")._replace(
        impact=impact._replace(low_bytes=None, expected_bytes=None, high_bytes=None), folded=True
    )
    assert choose([dear]).rest == "1 advises what no setting here does"
    assert choose([dear, unsized]).rest == "2 advise what no setting here does"


def test_what_was_not_read_never_reads_as_passed() -> None:
    unread = Skipped(Source("train.yaml", "deepspeed"), "names 'ds.json': no such file", named=True)
    checked = make_subject()
    lines = headline(EMPTY._replace(subjects=(checked,), skipped=(unread,), exit_code=4))
    assert lines[0] == "NOT CHECKED WHOLE: 1 input could not be read"
    assert lines[1] == "not read: train.yaml (deepspeed): names 'ds.json': no such file"
    assert headline(EMPTY._replace(subjects=(), exit_code=0))[0].startswith("NOTHING TO CHECK: ")
    assert headline(EMPTY._replace(subjects=(checked,), exit_code=0))[0].startswith("PASSES: ")


def test_what_the_answer_leaves_out_stands_in_its_first_lines() -> None:
    place = Source("run.sh", "$EXTRA", 2)
    batch = Fact("training.micro_batch_size", 1, "configuration", ())
    subject = make_subject()._replace(
        gaps=((place, "may hold any option"),),
        unselected=("extra train not selected: deepspeed 0.16.4 may be there; --extra train",),
        facts=(("train", batch),),
        unresolved=(
            ("training.gradient_checkpointing", place, "depends on $GC"),
            ("training.reduce_bucket_size", place, "`auto` depends on the model's hidden_size"),
        ),
    )
    assert headline(EMPTY._replace(subjects=(subject,)))[1:] == [
        "not read: run.sh:2 ($EXTRA): may hold any option",
        "not known: training.gradient_checkpointing at run.sh:2 ($EXTRA): depends on $GC",
        "extra train not selected: deepspeed 0.16.4 may be there; --extra train",
        "no estimate: it needs the model (--model), --set training.sequence_length=…",
    ]


def make_subject() -> SubjectReport:
    """Describe an environment that rules were checked on."""
    packages = (("torch", "2.6.0", "requirements.txt"),)
    return SubjectReport("env", "env", None, packages, (), (), (), (), ())


def test_what_was_found_and_not_read_is_said_first_too() -> None:
    unread = (Skipped(Source("a.yml", None, 5), "the alias has no anchor"), Skipped(Source("b.yml"), "is empty"))
    assert headline(EMPTY._replace(skipped=unread))[1] == "not checked: a.yml:5: the alias has no anchor and 1 more"
    assert len(headline(EMPTY)) == 1
