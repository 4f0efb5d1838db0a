"""A subject with changes is judged as if its files said so, and only where something of it changes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Checks, Request, gather
from compatcheck.checking.checks import Criteria
from compatcheck.checking.verdict import Judgement, judge
from compatcheck.core.effects import PATCH_RELEASE, SLOWER
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.fix import SETTING, VERSION, Change
from compatcheck.fixing.evaluation import Evaluation, resolve_changed, targets_of
from compatcheck.fixing.remedies import try_remedies
from compatcheck.rules.locate import open_rules
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

CASE = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"
RULE = "deepspeed/zero3-params-kept-in-backward"


@cache
def criteria() -> Criteria:
    return Criteria(open_rules(()), Checks(), parse_threshold("low"))


def judged(one: Subject) -> Judgement:
    return judge(one, criteria())


def findings(one: Subject) -> Sequence[Finding]:
    return judged(one).findings


def read(*paths: str) -> Subject:
    (subject,) = gather(Request(paths=paths), criteria().rules, {}).subjects
    return subject


@cache
def subject() -> Subject:
    return read(*(str(CASE / name) for name in ("requirements.txt", "facts.yaml", "config.json")))


def version(name: str, value: str, *subjects: str) -> Change:
    return Change(VERSION, name, None, value, frozenset(subjects), PATCH_RELEASE, (0,), "", release=value.lstrip(">="))


def setting(name: str, value: bool, *subjects: str) -> Change:  # noqa: FBT001 (a value)
    return Change(SETTING, name, None, value, frozenset(subjects), SLOWER, (0,), "", ((name, value),))


def test_releases_count_as_if_the_file_required_them(tmp_path: Path) -> None:
    changed = resolve_changed(subject(), [version("deepspeed", "0.16.9")], criteria().rules)
    text = (CASE / "requirements.txt").read_text()
    (tmp_path / "requirements.txt").write_text(text.replace("deepspeed==0.16.4", "deepspeed==0.16.9"))
    written = read(str(tmp_path / "requirements.txt"), str(CASE / "facts.yaml"), str(CASE / "config.json"))

    def described(one: Subject) -> list[tuple[object, ...]]:
        return [(f.rule_id, f.role, f.status, f.severity, f.fails, f.impact, f.needs) for f in findings(one)]

    assert described(changed) == described(written)
    assert RULE in {one.rule_id for one in findings(subject())} - {one.rule_id for one in findings(changed)}


def test_another_torch_brings_another_cuda(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    before = read(str(tmp_path / "requirements.txt"))
    after = resolve_changed(before, [version("torch", "2.10.0")], criteria().rules)
    cuda = [str(one.roles["train"]["runtime.torch_cuda"].value) for one in (before, after)]
    assert cuda[0] > cuda[1]


def test_a_subject_that_no_change_touches_is_not_judged_again() -> None:
    first, second = subject(), subject()._replace(id="other")
    evaluation = Evaluation((first, second), criteria().rules, judged)
    assert evaluation.count == 2
    assert {target.subject for target in evaluation.targets} == {first.id, "other"}
    one = version("deepspeed", "0.16.9", "other")
    failing = targets_of(evaluation.failing([one]))
    assert evaluation.count == 3
    assert {target.subject for target in evaluation.targets - failing} == {"other"}
    evaluation.failing([one])
    assert evaluation.count == 3


def test_what_the_run_was_resolved_with_stays() -> None:
    declared = subject()._replace(settings={"hardware.world_size": (16, subject().documents[0].source)})
    changed = resolve_changed(declared, [], criteria().rules)
    assert changed.roles["train"]["hardware.world_size"].value == 16


def test_a_range_that_only_may_be_good_still_fails(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed>=0.16.4,<0.16.8\n")
    stated = read(str(tmp_path / "requirements.txt"), str(CASE / "facts.yaml"))
    evaluation = Evaluation((stated,), criteria().rules, judged)
    mixed, good = version("deepspeed", ">=0.15.4,<0.16.8", stated.id), version("deepspeed", ">=0.16.8", stated.id)

    def is_there(change: Change) -> bool:
        return RULE in {one.rule_id for one in evaluation.failing([change])}

    assert is_there(mixed)
    assert not is_there(good)


@pytest.mark.parametrize(("value", "expected"), [(True, False), (False, True)])
def test_a_setting_counts_as_if_it_were_stated(value: bool, expected: bool) -> None:  # noqa: FBT001 (a value)
    changed = resolve_changed(subject(), [setting("training.use_reentrant", value)], criteria().rules)
    assert (RULE in {one.rule_id for one in findings(changed)}) == expected


@pytest.mark.parametrize(("written", "floor"), [("peft>=0.18", ">=0.20.0"), ("peft", ">=0.20.0"), ("peft>=0.21", None)])
def test_what_moves_raises_the_floor_of_a_range_that_would_leave_it_open(
    tmp_path: Path, written: str, floor: str | None
) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch==2.9.0\ntransformers==5.24.0\n{written}\n")
    (tmp_path / "facts.yaml").write_text("compatcheck: 1\nrun: {adapters_through_model: true}\n")
    known = read(str(tmp_path / "requirements.txt"), str(tmp_path / "facts.yaml"))
    evaluation = Evaluation((known,), criteria().rules, judged)
    changes = [version("transformers", "5.23.0", known.id)]
    floors = {one.name: one.after for one in evaluation.complete(changes) if one.follows}
    assert floors == ({} if floor is None else {"peft": floor})
    assert not evaluation.failing(changes)
    (fixed,) = [one for one in judged(known).findings if one.rule_id == "transformers/adapters-need-newer-peft"]
    (remedy,) = [one for one in try_remedies(known, (fixed,), criteria().rules, judged)[0].remedies if one.command]
    assert remedy.command == "pip install 'transformers==5.23.0'" + (f" 'peft{floor}'" if floor else "")
