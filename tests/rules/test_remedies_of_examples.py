"""What is advised against the findings of each rule's example: done by hand, it clears them and brings in none that fails."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from compatcheck.checking import Request
from compatcheck.checking.checks import Checks, Criteria
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.verdict import Variants
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.fix import write_value
from compatcheck.fixing.remedies import try_remedies
from compatcheck.matching.examples import EXPECTATION_KEYS
from compatcheck.rules.load import load_rule, rule_files
from compatcheck.rules.locate import open_rules
from tests.rules.test_rules import RULES as FOLDER

if TYPE_CHECKING:
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.rule import Rule

RULES = open_rules()
CRITERIA = Criteria(RULES, Checks(), parse_threshold("medium"))
ALL = [rule for path in rule_files(FOLDER) if (rule := load_rule(path, FOLDER)).status == "active"]


def make_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: make_plain(one) for key, one in value.items()}
    return [make_plain(one) for one in value] if isinstance(value, list | tuple) else value


def read(given: Mapping[str, Any], settings: tuple[tuple[str, Value], ...] = ()) -> Subject:
    Path("facts.yaml").write_text(yaml.safe_dump({"compatcheck": 1, **given}, sort_keys=False))
    stated = tuple(f"{name}={write_value(value)}" for name, value in settings)
    asked = Request(paths=("facts.yaml",), settings=stated, here=False)
    (subject,) = gather_all(as_inspection(asked), RULES, {}).subjects
    return subject


def key_of(finding: Finding) -> tuple[str, str]:
    return finding.rule_id, finding.role


@pytest.mark.parametrize("rule", [one for one in ALL if one.examples.match], ids=lambda rule: rule.id)
def test_a_remedy_holds_what_it_promises(rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = rule.examples.match[0]
    given: dict[str, Any] = {key: make_plain(one) for key, one in example.items() if key not in EXPECTATION_KEYS}
    subject = read(given)
    judge = Variants(CRITERIA)
    before = judge(subject).findings
    found = [one for one in try_remedies(subject, before, RULES, judge.remedied) if one.status == "affected"]
    failed = {key_of(one) for one in before if one.fails}
    for finding in found:
        texts = [remedy.text for remedy in finding.remedies]
        assert len(texts) == len(set(texts))
        for remedy in finding.remedies:
            facts, packages = subject.roles[finding.role], given.get("packages", {})
            if remedy.settings:
                assert not all(name in facts and facts[name].value == value for name, value in remedy.settings)
            if finding.rule_id != rule.id or not (remedy.releases or remedy.settings):
                continue
            assert all(packages.get(name) != release for name, release in remedy.releases)
            changed = read({**given, "packages": {**packages, **dict(remedy.releases)}}, remedy.settings)
            after = Variants(CRITERIA)(changed).findings
            left = {key_of(one) for one in after if one.status == "affected"}
            assert (key_of(finding) in left) is ("; leaves " in remedy.text), remedy.text
            assert {key_of(one) for one in after if one.fails} <= failed, remedy.text
    for one, other in combinations(found, 2):
        if not (one.remedies and other.remedies):
            continue
        pairs = [(dict(first.settings), dict(second.settings)) for first in one.remedies for second in other.remedies]
        contrary = [any(a[name] != b[name] for name in a.keys() & b.keys()) for a, b in pairs]
        assert not all(contrary), f"no remedy of {one.rule_id} goes with one of {other.rule_id}"
