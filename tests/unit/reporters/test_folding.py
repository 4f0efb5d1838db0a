"""Folding of findings and skipped inputs over many subjects."""

from __future__ import annotations

from compatcheck.core.report import Finding, FindingImpact
from compatcheck.core.source import Skipped, Source
from compatcheck.core.suppression import Suppression
from compatcheck.reporters.folding import fold_findings, fold_skips, shorten


def finding(rule_id: str, subject: str, severity: str = "medium", size: int | None = None, **given: object) -> Finding:
    impact = FindingImpact(size, size, size, "memory", "device", "rank", "backward")
    fields: dict[str, object] = {"status": "affected", "suppressed": None, "needs": (), **given}
    return Finding(
        rule_id=rule_id,
        subject=subject,
        role="train",
        kind="regression",
        title="title",
        severity=severity,
        confidence="measured",
        message="message",
        impact=impact,
        assumptions=(),
        facts=(),
        locations=(),
        remedies=(),
        references=(),
        **fields,  # type: ignore[arg-type]  # the fields a case varies
    )


def test_one_entry_per_rule_with_the_worst_finding_and_every_subject() -> None:
    folded = fold_findings([finding("a", "one", size=1), finding("b", "one", "high"), finding("a", "two", size=9)])
    assert [(entry.finding.rule_id, entry.subjects) for entry in folded] == [("b", ("one",)), ("a", ("one", "two"))]
    assert folded[1].finding.subject == "two"


def test_possible_and_affected_stay_apart_and_waived_ones_are_left_out() -> None:
    waived = finding("a", "three", suppressed=Suppression("known", None))
    folded = fold_findings([finding("a", "one"), finding("a", "two", status="possible", needs=("x",)), waived])
    assert [(entry.finding.status, entry.subjects) for entry in folded] == [
        ("affected", ("one",)),
        ("possible", ("two",)),
    ]


def test_among_equals_the_most_common_questions_are_shown() -> None:
    odd, usual, again = (
        finding("a", subject, status="possible", needs=(need,))
        for subject, need in (("1", "x"), ("2", "y"), ("3", "y"))
    )
    assert fold_findings([odd, usual, again])[0].finding.needs == ("y",)


def test_fewer_open_questions_come_first() -> None:
    many = finding("a", "one", status="possible", needs=("x", "y"))
    few = finding("b", "one", status="possible", needs=("x",))
    assert [entry.finding.rule_id for entry in fold_findings([many, few])] == ["b", "a"]


def test_skips_with_one_reason_fold_whatever_they_quote() -> None:
    skips = [
        Skipped(Source("a"), "names 'x': cannot be read", "did you mean 'y'?"),
        Skipped(Source("b"), "names 'z': cannot be read"),
        Skipped(Source("c"), "is not UTF-8 text"),
    ]
    folded = fold_skips(skips)
    assert [(entry.first.source.path, len(entry.others)) for entry in folded] == [("a", 1), ("c", 0)]


def test_shorten() -> None:
    assert shorten(["a", "b"]) == "a, b"
    assert shorten("abcde") == "a, b, c and 2 more"
