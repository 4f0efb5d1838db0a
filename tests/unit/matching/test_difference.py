"""Comparing two reports: what entered, left, stayed and grew, and which defaults flipped."""

from __future__ import annotations

import pytest

from compatcheck.core.facts import Fact
from compatcheck.core.report import Finding, FindingImpact, Report, SubjectReport
from compatcheck.core.source import Skipped, Source
from compatcheck.core.suppression import Suppression
from compatcheck.core.units import GIB
from compatcheck.matching.difference import compare


def finding(rule_id: str, *, gib: float | None = None, status: str = "affected", fails: bool = False) -> Finding:
    size = None if gib is None else int(gib * GIB)
    return Finding(
        rule_id=rule_id,
        subject="s",
        role="train",
        kind="regression",
        title="t",
        status=status,
        severity="high" if fails else "low",
        confidence="measured",
        message="m",
        impact=FindingImpact(size, size, size, "memory", "device", "rank", "whole"),
        needs=(),
        assumptions=(),
        facts=(),
        locations=(),
        remedies=(),
        references=(),
        fails=fails,
    )


def report(
    *findings: Finding,
    packages: dict[str, str | None] | None = None,
    facts: tuple[Fact, ...] = (),
    skipped: tuple[Skipped, ...] = (),
    strict: bool = False,
) -> Report:
    listed = {"torch": "2.6.0"} if packages is None else packages
    subject = SubjectReport(
        id="s",
        origin="s",
        python=None,
        packages=tuple((name, version, "s") for name, version in listed.items()),
        facts=tuple(("train", fact) for fact in facts),
        unread_keys=(),
        conflicts=(),
        unresolved=(),
        folded=(),
    )
    return Report("0", "id", "2026-11-21", 1, (subject,), findings, skipped, 0, "medium", strict)


def diff(before: Report, after: Report):
    return compare(("a", "b"), before, after, {"torch", "deepspeed"})


def default(value: object, release: str, origin: str = "reader-default") -> Fact:
    place = Source(f"default of the HF Trainer (transformers {release})")
    return Fact("training.use_reentrant", value, origin, (place,))  # type: ignore[arg-type]


def test_findings_enter_leave_and_stay() -> None:
    old = report(finding("p/left"), finding("p/same"))
    new = report(finding("p/same"), finding("p/new"))
    difference = diff(old, new)
    assert {change.finding.rule_id: change.kind for change in difference.findings} == {
        "p/new": "entered",
        "p/same": "stayed",
        "p/left": "left",
    }
    swapped = diff(new, old)
    assert {change.finding.rule_id: change.kind for change in swapped.findings} == {
        "p/new": "left",
        "p/same": "stayed",
        "p/left": "entered",
    }


def test_nothing_differs_from_itself() -> None:
    side = report(finding("p/a", gib=1, fails=True), facts=(default(value=True, release="4.48.0"),))
    difference = diff(side, side)
    assert (difference.packages, difference.facts, difference.exit_code) == ((), (), 0)
    assert [change.kind for change in difference.findings] == ["stayed"]
    assert difference.peaks is None


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ((), (finding("p/a", fails=True),), 1),
        ((), (finding("p/a"),), 0),
        ((finding("p/a", fails=True),), (finding("p/a", fails=True),), 0),
        ((finding("p/a", fails=True),), (), 0),
        ((finding("p/a", status="possible"),), (finding("p/a", fails=True),), 1),
        ((finding("p/a", gib=1),), (finding("p/a", gib=9, fails=True),), 1),
        ((finding("p/b", fails=True),), (finding("p/a", fails=True),), 1),
    ],
    ids=["enters", "enters below", "stays", "leaves", "becomes certain", "grows", "one for another"],
)
def test_exit_code_is_about_what_the_change_brings(
    old: tuple[Finding, ...], new: tuple[Finding, ...], code: int
) -> None:
    assert diff(report(*old), report(*new)).exit_code == code


def test_a_waived_finding_does_not_fail() -> None:
    waived = finding("p/a")._replace(suppressed=Suppression("known", None))
    assert diff(report(), report(waived)).exit_code == 0


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (report(skipped=(Skipped(Source("x"), "r", named=True),)), report(), 4),
        (report(), report(skipped=(Skipped(Source("x"), "r"),)), 0),
        (report(packages={}), report(), 3),
        (report(), report(packages={}), 3),
        (
            report(packages={}, skipped=(Skipped(Source("x"), "r", named=True),)),
            report(finding("p/a", fails=True)),
            1,
        ),
    ],
)
def test_what_could_not_be_compared_is_not_clean(before: Report, after: Report, code: int) -> None:
    assert diff(before, after).exit_code == code


def test_sizes_and_statuses_that_changed() -> None:
    old = report(finding("p/grew", gib=1), finding("p/sure", status="possible"), finding("p/unsized"))
    new = report(finding("p/grew", gib=4), finding("p/sure"), finding("p/unsized", gib=2))
    changes = {change.finding.rule_id: change for change in diff(old, new).findings}
    assert changes["p/grew"].sizes == (GIB, 4 * GIB)
    assert changes["p/grew"].statuses is None
    assert changes["p/sure"].statuses == ("possible", "affected")
    assert changes["p/unsized"].sizes is None  # unknown before: nothing is known to have grown
    assert not any(change.newly_fails for change in changes.values())


def test_a_change_of_severity_or_waiver_is_one() -> None:
    worse = finding("p/a")._replace(severity="high")
    (change,) = diff(report(finding("p/a")), report(worse)).findings
    assert (change.changed, change.severities) == (True, ("low", "high"))
    waived = finding("p/a")._replace(suppressed=Suppression("known", None))
    (change,) = diff(report(waived), report(finding("p/a"))).findings
    assert (change.changed, change.waived) == (True, (True, False))
    (change,) = diff(report(waived), report(waived)).findings
    assert not change.changed


def test_what_fails_comes_first_then_what_entered() -> None:
    old = report(finding("p/left"), finding("p/became", status="possible"), finding("p/same"))
    new = report(finding("p/entered"), finding("p/became", fails=True), finding("p/same"))
    assert [change.finding.rule_id for change in diff(old, new).findings] == [
        "p/became",
        "p/entered",
        "p/same",
        "p/left",
    ]


def test_roles_are_apart() -> None:
    difference = diff(report(finding("p/a")), report(finding("p/a")._replace(role="actor")))
    assert sorted(change.kind for change in difference.findings) == ["entered", "left"]


def test_packages_that_changed() -> None:
    old = report(packages={"torch": "2.6.0", "numpy": "1.26", "gone": "1", "ranged": ">=1", "free": None})
    new = report(packages={"torch": "2.7.0", "numpy": "1.26", "deepspeed": "0.16.4", "ranged": ">=2", "free": "3"})
    difference = diff(old, new)
    assert [(change.name, change.before, change.after, change.known) for change in difference.packages] == [
        ("deepspeed", None, "0.16.4", True),
        ("free", "", "3", False),
        ("gone", "1", None, False),
        ("ranged", ">=1", ">=2", False),
        ("torch", "2.6.0", "2.7.0", True),
    ]


def test_a_package_without_a_release_is_not_an_absent_one() -> None:
    assert [change.before for change in diff(report(packages={"a": None}), report(packages={})).packages] == [""]


def test_a_default_flips_where_nobody_wrote_the_value() -> None:
    old, new = default(value=True, release="4.48.0"), default(value=False, release="5.0.0", origin="library-default")
    (change,) = diff(report(facts=(old,)), report(facts=(new,))).facts
    assert change.flipped
    assert (change.before.value, change.after.value) == (True, False)
    written = old._replace(origin="configuration")
    (change,) = diff(report(facts=(written,)), report(facts=(new,))).facts
    assert not change.flipped


def test_a_fact_of_one_side_only_is_no_flip() -> None:
    assert diff(report(), report(facts=(default(value=True, release="4.48.0"),))).facts == ()
