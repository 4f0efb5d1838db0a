"""What would help a run: each single change and the plan, judged whole; what is announced is what comes."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise

import pytest

from compatcheck.checking.checks import Checks, Criteria
from compatcheck.checking.verdict import Judgement, Variants
from compatcheck.core.effects import EFFECTS, MORE_HARDWARE
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.suggestions import Suggestion
from compatcheck.fixing.plan import count_steps
from compatcheck.fixing.suggestions import suggest
from compatcheck.resolution.subject import Subject
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.cli.run_cli import run
from tests.unit.fixing.test_evaluation import read

CASES = ("logic-rl-n32", "openrlhf-llama3-70b", "qwen1.5-32b-8xa800", "search-r1-0.5b-retriever", "search-r1-32b")
RULES = open_rules(())
CRITERIA = Criteria(RULES, Checks(), parse_threshold("medium"))


def subject(case: str) -> Subject:
    folder = ROOT / "fixtures" / "cases" / case
    names = ("requirements.txt", "facts.yaml", "config.json")
    return read(*(str(folder / name) for name in names if (folder / name).exists()))


@cache
def suggestions(case: str) -> tuple[Suggestion, ...]:
    return suggest(subject(case), RULES, Variants(CRITERIA))


@pytest.mark.parametrize("case", CASES)
def test_what_fits_comes_first_and_then_what_costs_less(case: str) -> None:
    found = suggestions(case)
    assert found[0].outcome == (
        "marginal" if case == "openrlhf-llama3-70b" else "fits"
    )  # for certain with a major release
    assert all(one.saved_bytes > 0 for one in found)
    fitting = [one for one in found if one.outcome == "fits"]
    assert list(found[: len(fitting)]) == fitting
    for before, after in pairwise(fitting):
        assert EFFECTS.index(before.effect) <= EFFECTS.index(after.effect)
        if before.effect == after.effect == MORE_HARDWARE:
            assert before.saved_bytes <= after.saved_bytes  # no more nodes than it takes


@pytest.mark.parametrize("case", CASES)
def test_settings_stated_by_their_options_give_exactly_the_number(case: str) -> None:
    folder = str(ROOT / "fixtures" / "cases" / case)
    checked = 0
    for one in suggestions(case):
        if any(change.release for change in one.changes):
            continue
        options = [part for change in one.changes for option in change.options for part in option.split()]
        ran = run("estimate", folder, "--no-policy", "--format", "json", *options)
        (after,) = json.loads(ran.out)["subjects"]
        assert after["estimate"]["needed_bytes"] == one.needed._asdict(), options
        assert after["estimate"]["verdict"] == one.outcome
        checked += 1
    assert checked


def test_a_run_that_only_may_fit_is_made_to_fit_by_what_costs_least() -> None:
    first = suggestions("qwen1.5-32b-8xa800")[0]
    assert {change.name for change in first.changes} == {
        "training.gradient_checkpointing",
        "training.offload_optimizer",
    }
    assert first.effect == "same result, slower"


@pytest.mark.parametrize("case", ["qwen1.5-32b-8xa800", "logic-rl-n32"])
def test_no_part_of_a_combination_is_enough(case: str) -> None:
    first = suggestions(case)[0]
    alone = [one for one in suggestions(case) if len(one.changes) == 1 and one.outcome == "fits"]
    assert len(first.changes) == 1 or not any(set(one.changes) < set(first.changes) for one in alone)


def test_a_release_is_suggested_with_what_has_to_move_along() -> None:
    first = suggestions("openrlhf-llama3-70b")[0]
    releases = {change.name: change.release for change in first.changes}
    assert releases["deepspeed"] == "0.16.8"
    assert releases["openrlhf"] == "0.8.1"
    assert [change.name for change in first.changes if not change.follows] == ["deepspeed"]
    assert "deepspeed/zero3-params-kept-in-backward" in first.clears
    assert first.effect == "minor release"  # it costs what all that moves costs


def test_what_brings_in_something_that_fails_is_no_suggestion() -> None:
    case = subject("qwen1.5-32b-8xa800")
    bad = Variants(CRITERIA)(case).findings[0]._replace(rule_id="made/up", fails=True, status="affected")

    class Refusing(Variants):
        def __call__(self, subject: Subject) -> Judgement:
            found = super().__call__(subject)
            stated = (facts.get("training.offload_optimizer") for facts in subject.roles.values())
            offloads = any(fact is not None and fact.value == "cpu" for fact in stated)
            return found._replace(findings=(*found.findings, bad)) if offloads else found

    names = {change.name for one in suggest(case, RULES, Refusing(CRITERIA)) for change in one.changes}
    assert names
    assert "training.offload_optimizer" not in names


@pytest.mark.parametrize(
    ("needed", "limit", "steps"), [(80, 80, 0), (70, 80, 0), (81, 80, 1), (160, 80, 16), (320, 80, 32)]
)
def test_what_is_missing_counts_by_doublings_of_a_device(needed: int, limit: int, steps: int) -> None:
    assert count_steps(needed, limit) == steps
