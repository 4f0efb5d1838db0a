"""Every rule file is well formed, its examples hold, and they cover each boundary and each atom."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.cli.laboratory import find_evidence_check
from compatcheck.matching.examples import check_rule
from compatcheck.rules.compile import compile_directory, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.load import load_rule, load_rules, rule_files
from tests import ROOT

RULES = ROOT / "rules"


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet((open_compiled(compile_directory(RULES), "rules"),))


def test_what_only_recomputes_is_safe_in_every_rule() -> None:
    """One setting, one verdict: a plan may not call safe what another rule of the run calls unsafe."""
    checkpoints = {"training.gradient_checkpointing": True}
    unsafe = [
        rule.id
        for rule in load_rules(RULES)
        for remedy in rule.remedies
        if remedy.verb == "set" and remedy.target == checkpoints and remedy.safety != "safe"
    ]
    assert unsafe == []


@pytest.mark.parametrize("path", rule_files(RULES), ids=lambda path: path.relative_to(RULES).with_suffix("").as_posix())
def test_rule_is_sound(path: Path, rules: RuleSet) -> None:
    problems = check_rule(load_rule(path, RULES), rules, ROOT, find_evidence_check(rules))
    assert [f"{problem.source.key}: {problem.message}" for problem in problems] == []
