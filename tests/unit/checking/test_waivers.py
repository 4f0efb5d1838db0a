"""Waivers: what they cover, how they end, and what is said about them."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from compatcheck.checking import Checks, Request, gather
from compatcheck.checking.checks import Criteria
from compatcheck.checking.policy import Waiver, read_policy
from compatcheck.checking.report import build_report
from compatcheck.checking.waivers import Waivers
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.report import Report
from compatcheck.core.source import Source
from compatcheck.rules.locate import open_rules

RULE = "deepspeed/zero3-params-kept-in-backward"
TODAY = date(2026, 11, 21)


@pytest.fixture(scope="module")
def rules():
    return open_rules()


@pytest.fixture
def check(rules, tmp_path):
    def run(
        text: str, requirement: str = "deepspeed==0.16.4", *, complete: bool = True
    ) -> tuple[Report, tuple[str, ...]]:
        (tmp_path / "compatcheck.toml").write_text(text)
        (tmp_path / "requirements.txt").write_text(f"{requirement}\n")
        (tmp_path / "facts.yaml").write_text(
            "compatcheck: 1\nmodel: llama-3-70b\ntraining: {zero_stage: 3, gradient_checkpointing: true, "
            "use_reentrant: false, param_dtype: bfloat16}\n",
        )
        policy = read_policy(str(tmp_path / "compatcheck.toml"))
        assert policy is not None
        waivers = Waivers(policy.waivers, rules, TODAY)
        criteria = Criteria(rules, Checks(), parse_threshold("medium"), waivers)
        report = build_report(gather(Request(paths=(str(tmp_path),)), rules, {}), criteria)
        return report, waivers.notes(complete=complete)

    return run


def waived(report: Report) -> list[str]:
    return [finding.rule_id for finding in report.findings if finding.suppressed is not None]


def waiver(**keys: str) -> str:
    return (
        "[[waivers]]\n"
        + "\n".join(f'{name} = "{value}"' for name, value in ({"reason": "agreed"} | keys).items())
        + "\n"
    )


@pytest.mark.parametrize("rule", [RULE, "deepspeed/zero3-params*", "*"])
def test_waived_finding_neither_counts_nor_vanishes(check, rule) -> None:
    report, notes = check(waiver(rule=rule))
    assert RULE in waived(report)
    finding = next(item for item in report.findings if item.rule_id == RULE)
    assert not finding.fails
    assert finding.suppressed is not None
    assert finding.suppressed.reason == "agreed"
    assert notes == ()


def test_without_waivers_the_run_fails(check) -> None:
    report, _ = check("")
    assert report.exit_code == 1
    assert waived(report) == []


def test_waiver_of_everything_lets_the_run_pass(check) -> None:
    report, _ = check(waiver(rule="*"))
    assert report.exit_code == 0
    assert len(waived(report)) == len(report.findings) > 0


@pytest.mark.parametrize(
    ("package", "covers"),
    [
        ("deepspeed", True),
        ("deepspeed<0.16.8", True),
        ("DeepSpeed==0.16.4", True),
        ("deepspeed>=0.16.5", False),
        ("torch", False),
    ],
)
def test_package_narrows_a_waiver(check, package, covers) -> None:
    report, _ = check(waiver(rule=RULE, package=package))
    assert (RULE in waived(report)) is covers


def test_range_that_only_some_releases_meet_does_not_waive(check) -> None:
    report, _ = check(waiver(rule=RULE, package="deepspeed<0.16.8"), "deepspeed>=0.15")
    assert RULE in {finding.rule_id for finding in report.findings}
    assert waived(report) == []


@pytest.mark.parametrize(("days", "covers"), [(0, True), (1, True), (-1, False)])
def test_waiver_holds_through_its_last_day(check, days, covers) -> None:
    day = TODAY + timedelta(days=days)
    report, notes = check(waiver(rule=RULE, expires=day.isoformat(), owner="infra"))
    assert (RULE in waived(report)) is covers
    if not covers:
        assert report.exit_code == 1
        assert f"expired on {day} and no longer covers {RULE} (infra)" in notes[0]
        assert "compatcheck.toml:1: " in notes[0]


def test_until_a_version_ends_a_waiver(check) -> None:
    text = waiver(rule="deepspeed/*", until="deepspeed>=0.16.8")
    report, notes = check(text)
    assert RULE in waived(report)
    assert notes == ()
    report, notes = check(text, "deepspeed==0.16.9")
    assert waived(report) == []
    assert notes
    assert "deepspeed>=0.16.8" in notes[0] or "covers nothing" in notes[0]


def test_waiver_that_covers_nothing_is_told(check) -> None:
    _, notes = check(waiver(rule="bitsandbytes/*"))
    assert "the waiver of bitsandbytes/* covers nothing: remove it" in notes[0]
    _, notes = check(waiver(rule="bitsandbytes/*"), complete=False)
    assert notes == ()


def test_expired_waiver_that_covers_nothing_is_told(check) -> None:
    _, notes = check(waiver(rule="bitsandbytes/*", expires="2020-01-01"), complete=False)
    assert "expired on 2020-01-01 and covers nothing" in notes[0]


def test_misspelt_rule_is_told(check) -> None:
    _, notes = check(waiver(rule="deepspeed/zero3-params-kept-in-bakward"), complete=False)
    assert f"is about no rule: did you mean {RULE}?" in notes[0]


class Renamed:
    """A database in which one rule was renamed."""

    def find(self, rule_id: str):
        return Entry() if rule_id in {"deepspeed/old-name", RULE} else None


class Entry:
    id = RULE


def test_former_id_still_waives() -> None:
    waivers = Waivers((Waiver("deepspeed/old-name", "agreed", Source("compatcheck.toml")),), Renamed(), TODAY)
    assert waivers.entries[0][1] == RULE
