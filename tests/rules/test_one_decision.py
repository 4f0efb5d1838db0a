"""What `explain` says of a rule is what matching says of it: each example of each rule, as a run of its own."""

from __future__ import annotations

import pytest

from compatcheck.matching.engine import match
from compatcheck.matching.examples import KINDS, example_subject
from compatcheck.matching.explain import explain
from compatcheck.rules.load import load_rule, rule_files
from compatcheck.rules.locate import open_rules
from tests.rules.test_rules import RULES as FOLDER

RULES = open_rules()
BY_ID = {(rule := load_rule(path, FOLDER)).id: rule for path in rule_files(FOLDER)}


@pytest.mark.parametrize("rule_id", [one.id for one in BY_ID.values() if one.status == "active"])
def test_explain_agrees_with_matching(rule_id: str) -> None:
    compiled = RULES.find(rule_id)
    assert compiled is not None
    for kind in KINDS:
        for index, example in enumerate(getattr(BY_ID[rule_id].examples, kind)[:3]):
            subject = example_subject(example, RULES, "example")
            found = match(subject, RULES, lambda one: one == rule_id).findings
            (told,) = explain(compiled, subject, RULES, lambda source: source)
            status = found[0].status if found else "silent"
            assert (told.decision.status if told.because is None else "silent") == status, (kind, index)
            if found:
                impact = found[0].impact
                assert impact is None or told.expected_bytes == impact.expected_bytes
