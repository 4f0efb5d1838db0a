"""Cells and bounds of a real run: what is not evaluated again would have come out the same."""

from __future__ import annotations

import itertools
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.checking import Request, gather
from compatcheck.checking.checks import Checks
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.fix import REFUSED, RESOLVED
from compatcheck.fixing.find import Judging
from compatcheck.fixing.problem import Axis, Case, Releases, group_by_files
from compatcheck.fixing.reevaluation import Judge, Recall
from compatcheck.fixing.search import Choice, search
from compatcheck.rules.locate import open_rules
from tests import ROOT

CASE = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"
MOVED = ("deepspeed", "openrlhf", "transformers", "torch", "vllm")


@cache
def problem() -> Releases:
    rules = open_rules(())
    paths = tuple(str(CASE / name) for name in ("requirements.txt", "facts.yaml", "config.json"))
    (subject,) = gather(Request(paths=paths), rules, {}).subjects
    environment = subject.environment
    assert environment is not None
    axes = {
        name: Axis(
            environment.packages[name], tuple(one for one in rules.releases(name) if one.replace(".", "").isdigit())
        )
        for name in MOVED
    }
    judging = Judging(rules, Checks(), parse_threshold("low"), None)
    judge = Judge(rules, judging.checks.selects, judging.mark)
    built = Releases([Case(subject, (), {})], judge, axes, {}, None)
    built.select(built.choices({}))
    return built


@cache
def recall() -> Recall:
    return Recall(problem().cases[0], problem().judge)


@cache
def choices() -> dict[str, list[Choice]]:
    return problem().choices({})


def drawn(names: tuple[str, ...]) -> st.SearchStrategy[tuple[Choice, ...]]:
    return st.tuples(*(st.sampled_from(choices()[name]) for name in names))


SETS = st.lists(st.sampled_from(MOVED), unique=True, min_size=1, max_size=3).map(sorted).map(tuple)


@settings(max_examples=80, deadline=None)
@given(SETS.flatmap(drawn))
def test_releases_of_one_cell_have_one_outcome(drawn_choices: tuple[Choice, ...]) -> None:
    first = [next(one for one in choices()[choice.axis] if one.cell == choice.cell) for choice in drawn_choices]
    assert problem().evaluate(drawn_choices) == problem().evaluate(first)


ZERO_STAGES = st.sampled_from(
    [{}, {"training.zero_stage": 2}, {"training.zero_stage": 3}, {"training.micro_batch_size": 1}]
)


@settings(max_examples=80, deadline=None)
@given(SETS.flatmap(drawn), ZERO_STAGES)
def test_what_is_recalled_is_what_the_whole_engine_finds(drawn_choices: tuple[Choice, ...], stated: dict) -> None:
    (case,) = problem().cases
    packages = problem().packages_after(drawn_choices)
    judging = Judging(problem().rules, Checks(), parse_threshold("low"), None)
    expected = judging.findings(case.change(problem().rules, packages, stated))
    found = recall().findings(packages, stated)
    assert [(one.rule_id, one.role, one.status, one.fails, one.impact, one.needs) for one in found] == [
        (one.rule_id, one.role, one.status, one.fails, one.impact, one.needs) for one in expected
    ]


def test_a_rule_is_evaluated_again_only_where_what_it_read_differs() -> None:
    (case,) = problem().cases
    fresh = Recall(case, problem().judge)
    fresh.findings({}, {})
    first = fresh.evaluations
    fresh.findings({}, {})
    assert fresh.evaluations == first
    (choice,) = (one for one in choices()["openrlhf"] if one.value == "0.6.4")
    fresh.findings(problem().packages_after([choice]), {})
    assert first < fresh.evaluations < 1.2 * first


@settings(max_examples=40, deadline=None)
@given(SETS.flatmap(drawn))
def test_a_bound_is_never_above_what_remains(drawn_choices: tuple[Choice, ...]) -> None:
    score = problem().score(drawn_choices)
    assert problem().lowest() <= problem().bound([choice.axis for choice in drawn_choices])
    assert problem().bound([choice.axis for choice in drawn_choices]) <= score.remaining


def test_the_search_finds_what_trying_every_cell_finds() -> None:
    built = problem()
    few = {
        name: [choice for choice in choices()[name] if choice.value.startswith(starts)]
        for name, starts in (
            ("deepspeed", ("0.16.", "0.15.")),
            ("openrlhf", ("0.6.", "0.7.")),
            ("torch", ("2.5.", "2.6.")),
        )
    }
    best = search(built, built.select(few), most_changes=3)
    expected = min(
        (score.remaining, sum(not choice.safe for choice in combination), size)
        for size in range(4)
        for names in itertools.combinations(few, size)
        for combination in itertools.product(*(few[name] for name in names))
        for score in [built.score(combination)]
        if score.allowed
    )
    assert (best.remaining, best.unsafe, len(best.choices)) == expected
    assert best.remaining < built.score(()).remaining


def test_a_refusal_tells_which_other_package_has_to_move() -> None:
    def ask(wanted: dict) -> tuple[str, str | None]:
        if "deepspeed" in wanted and "openrlhf" not in wanted:
            return REFUSED, "because openrlhf==0.6.1 depends on deepspeed==0.16.4"
        return RESOLVED, None

    base = problem()
    built = Releases(base.cases, base.judge, base.axes, {}, ask)  # type: ignore[arg-type]
    built.select(built.choices({}))
    assert built.core(("deepspeed",), 3) == {"openrlhf"}
    assert built.core(("deepspeed", "openrlhf"), 3) is None


def test_subjects_that_share_a_file_are_one_group() -> None:
    files = {"a": ["r.txt", "a.yaml"], "b": ["s.txt"], "c": ["r.txt"], "d": ["s.txt", "t.txt"], "e": ["t.txt"]}
    assert group_by_files(files) == [("a", "c"), ("b", "d", "e")]
