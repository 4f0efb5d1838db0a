"""Every kind of node is judged once, by the rules, with what is unlike the others among its facts."""

from __future__ import annotations

import pytest

from compatcheck.checking.checks import Checks
from compatcheck.checking.request import Request
from compatcheck.core.errors import NothingToCheckError
from compatcheck.core.fleet import Fleet
from compatcheck.core.node import Answers, Node
from compatcheck.fleet.merge import MOST_VALUES, judge_nodes
from compatcheck.rules.locate import open_rules
from tests.unit.fleet.drawn_nodes import draw

DIFFER = "_stack/nodes-of-a-job-differ"


def judge(*nodes: Node, lost: tuple[tuple[str, str], ...] = (), request: Request | None = None) -> Fleet:
    return judge_nodes(Answers(nodes, lost), request or Request(), open_rules(()), {}, Checks())


def failing(fleet: Fleet) -> set[tuple[str, str]]:
    return {(finding.rule_id, finding.subject) for finding in fleet.report.findings if finding.fails}


def test_nodes_that_are_alike_are_one_subject():
    fleet = judge(draw("b"), draw("a"), draw("c"))
    assert fleet.kinds == (("a and 2 alike", ("a", "b", "c")),)
    assert (failing(fleet), fleet.report.exit_code, fleet.excluded) == (set(), 0, ())


def test_the_odd_node_fails_and_is_left_out():
    fleet = judge(draw("a"), draw("b"), draw("odd", {"torch": "2.5.1", "pytest": "8.1"}))
    assert failing(fleet) == {(DIFFER, "odd")}
    (finding,) = (one for one in fleet.report.findings if one.rule_id == DIFFER)
    assert "torch 2.5.1 here, 2.6.0 on 2 of 3 nodes" in str(finding.facts[0].note)
    assert (fleet.report.exit_code, fleet.excluded) == (1, ("odd",))


def test_what_does_not_matter_makes_no_kind():
    fleet = judge(draw("a"), draw("b", {"pytest": "8.1"}))
    assert len(fleet.kinds) == 1
    assert [skew.name for skew in fleet.skews] == ["pytest"]
    assert fleet.report.exit_code == 0


def test_where_no_value_has_most_every_node_is_told_and_none_left_out():
    fleet = judge(draw("a"), draw("b", {"torch": "2.5.1"}))
    assert failing(fleet) == {(DIFFER, "a"), (DIFFER, "b")}
    assert fleet.excluded == ()


def test_of_what_every_node_has_its_own_few_values_are_told_with_each():
    """As the rank of the machine in a configuration of accelerate: a thousand nodes would tell a million values."""
    fleet = judge(*(draw(f"n{number}", configuration={"acc.yaml": f"{number:012x}"}) for number in range(20)))
    notes = [str(finding.facts[0].note) for finding in fleet.report.findings if finding.rule_id == DIFFER]
    assert len(notes) == 20
    assert all(note.count("sha256") == 1 + MOST_VALUES and "11 more values of 20 nodes" in note for note in notes)


def test_a_rule_holds_on_the_node_that_has_the_release():
    text = ("training.zero_stage=3", "training.gradient_checkpointing=true", "training.use_reentrant=false")
    fleet = judge(draw("a"), draw("b"), draw("odd", {"deepspeed": "0.16.4"}), request=Request(settings=text))
    found = {one.subject for one in fleet.report.findings if one.rule_id.startswith("deepspeed/zero3-params-kept")}
    assert found == {"odd"}


def test_a_silent_node_is_listed_left_out_and_code_4():
    fleet = judge(draw("a"), draw("b"), lost=(("c", "did not answer within 60 s"),))
    assert [str(entry) for entry in fleet.report.skipped] == ["c: did not answer within 60 s"]
    assert (fleet.report.exit_code, fleet.excluded) == (4, ("c",))


def test_nodes_that_should_be_there_are_missed():
    fleet = judge(draw("a"), draw("b"), request=Request(nodes=4))
    assert "of 2 of 4 nodes nothing is known" in str(fleet.report.skipped[0])
    assert (fleet.report.exit_code, fleet.excluded) == (4, ())


def test_the_run_has_the_nodes_that_there_are():
    (subject,) = judge(draw("a"), draw("b")).report.subjects
    facts = {fact.name: fact.value for _, fact in subject.facts}
    assert (facts["hardware.nodes"], facts["hardware.gpus_per_node"], facts["hardware.gpu"]) == (2, 8, "H100-80GB")


def test_one_node_that_answers_twice_counts_once_unless_it_differs():
    assert judge(draw("a"), draw("a")).nodes == 1
    assert dict(judge(draw("a"), draw("a", {"torch": "2.5.1"})).kinds) == {"a": ("a",), "a (2)": ("a (2)",)}


def test_no_node_is_nothing_to_check():
    with pytest.raises(NothingToCheckError, match="did not answer"):
        judge(lost=(("a", "did not answer within 60 s"),))
