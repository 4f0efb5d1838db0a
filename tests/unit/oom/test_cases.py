"""Public messages: what is named, what honestly is not; no message is explained wrongly."""

from __future__ import annotations

import textwrap
from collections import Counter

import pytest
import yaml

from compatcheck.core.facts import Fact
from compatcheck.frameworks.model import configuration as model
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.oom.explain import explain
from compatcheck.oom.message import read_messages
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.oom.printed_messages import print_message, print_other

CASES = yaml.safe_load((ROOT / "fixtures/oom/cases.yaml").read_text(encoding="utf-8"))


def print_case(case: dict) -> str:
    """Print a report as the thread has it: traceback, prefixes of lines and line breaks included."""
    if "era" in case:
        message = print_message(case["era"], case["sizes"], case.get("device", 0), case.get("allocator", "CUDA"))
    else:
        message = print_other(case["form"], case.get("sizes", {}))
    lines = ["Traceback (most recent call last):"] if "frames" in case else []
    for file, line, function, code in case.get("frames", ()):
        lines += [f'  File "{file}", line {line}, in {function}', f"    {code}"]
    text = "torch.OutOfMemoryError: " + message
    lines += textwrap.wrap(text, case["broken"]) if "broken" in case else text.split("\n")
    return "\n".join(case.get("prefix", "") + line for line in lines)


def facts_of(case: dict) -> dict[str, Fact]:
    facts = {}
    named = case.get("model")
    if named is not None:
        rules = open_rules(())
        document = (
            find_model(named, rules, {}) if isinstance(named, str) else model.read(named, "config.json").documents[0]
        )
        facts = {statement.fact: Fact(statement.fact, statement.value, "model") for statement in document.statements}
    return {**facts, **{name: Fact(name, value, "set") for name, value in case.get("facts", {}).items()}}


def explain_case(case: dict):
    (message,) = read_messages(print_case(case))
    return explain(message, facts_of(case))


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case_is_explained_as_it_was_judged(case) -> None:
    reading, expected = explain_case(case), case["expect"]
    assert reading.outcome == expected["outcome"], reading.reason
    if "name" in expected:
        assert expected["name"] in reading.matches[0].name
    if "cause" in expected:
        assert reading.budget.cause == expected["cause"], reading.budget.reason
    if "place" in expected:
        assert f"{reading.place.phase}/{reading.place.part}" == expected["place"]
    if "remark" in expected:
        assert expected["remark"] in " ".join(reading.remarks)


def test_no_case_is_judged_wrong_and_each_has_a_thread() -> None:
    assert len({case["url"] for case in CASES}) >= 30
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert all(case["url"].startswith("https://github.com/") for case in CASES)
    judged = Counter(case["judged"] for case in CASES)
    assert set(judged) <= {"right", "honest", "tie"}
    for case in CASES:
        named = {"named": "right", "tied": "tie"}.get(case["expect"]["outcome"], "honest")
        assert case["judged"] == named, case["id"]


def write() -> None:
    """Print the table of docs/oom.md: ``python tests/unit/memory/oom/test_oom_cases.py``."""
    print("| thread | message | asked for | outcome | cause | judged |\n| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        reading = explain_case(case)
        thread = case["url"].removeprefix("https://github.com/").replace("/issues/", "#").replace("/pull/", "#")
        era = (
            f"torch {case['era']}"
            if case.get("era", "npu") != "npu"
            else "torch_npu"
            if "era" in case
            else case["form"]
        )
        named = (
            reading.matches[0].name
            if reading.outcome in {"named", "tied"}
            else "not derivable"
            if reading.outcome != "no_size"
            else "no size"
        )
        cause = "" if reading.budget is None else reading.budget.cause.replace("_", " ")
        asked = "" if reading.message.asked is None else reading.message.asked.text
        print(f"| [{thread}]({case['url']}) | {era} | {asked} | {named} | {cause} | {case['judged']} |")


if __name__ == "__main__":
    write()
