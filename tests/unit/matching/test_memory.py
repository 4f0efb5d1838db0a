"""What rules came to is remembered as long as all that they have read stays what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.matching.memory import Memory
from tests.unit.rules.drawn_rules import rule_set

if TYPE_CHECKING:
    from compatcheck.resolution.scope import FactScope


def environment(torch: str) -> Environment:
    source = Source("requirements.txt")
    packages = {"torch": Package("torch", torch, source), "trl": Package("trl", "0.1", source)}
    return Environment("here", packages, complete=True)


def facts(stage: int, rank: int = 8) -> dict[str, Fact]:
    return {name: Fact(name, value, "set") for name, value in (("stage", stage), ("rank", rank))}


@pytest.mark.parametrize(
    ("frame", "stage", "rank", "torch", "asked"),
    [
        pytest.param("train", 3, 8, "2.6.0", 1, id="nothing differs"),
        pytest.param("train", 3, 16, "2.6.0", 1, id="a fact that was not read"),
        pytest.param("train", 2, 8, "2.6.0", 2, id="a fact that was read"),
        pytest.param("train", 3, 8, "2.7.0", 2, id="a package that was read"),
        pytest.param("reference", 3, 8, "2.6.0", 2, id="another role"),
    ],
)
def test_an_answer_stands_while_what_it_read_does(*, frame: str, stage: int, rank: int, torch: str, asked: int) -> None:
    times = []

    def answer(scope: FactScope) -> tuple[object, object]:
        times.append(1)
        package = scope.package("torch")
        return scope.value("stage"), package and package.version

    memory = Memory()
    assert memory.open("train", facts(3), environment("2.6.0"), rule_set()).ask("rule", answer) == (3, "2.6.0")
    assert memory.open(frame, facts(stage, rank), environment(torch), rule_set()).ask("rule", answer) == (stage, torch)
    assert len(times) == asked


def test_an_answer_that_goes_through_all_facts_is_refused() -> None:
    with pytest.raises(NotImplementedError):
        Memory().open("train", facts(3), None, rule_set()).ask("rule", lambda scope: list(scope.facts))


def test_finding_one_of_many_answers_compares_what_was_read_once_each() -> None:
    """Its cost does not grow with the answers that differ in something read later."""
    memory = Memory()
    compared = []

    class Watched(int):
        def __eq__(self, other: object) -> bool:
            compared.append(1)
            return int(self) == other

        __hash__ = int.__hash__

    def answer(scope: FactScope) -> object:
        return scope.value("stage"), scope.value("rank") if scope.value("stage") == 3 else None

    for rank in range(50):
        memory.open("train", facts(3, Watched(rank)), None, rule_set()).ask("rule", answer)
    compared.clear()
    assert memory.open("train", facts(2, Watched(9)), None, rule_set()).ask("rule", answer) == (2, None)
    assert memory.open("train", facts(3, Watched(7)), None, rule_set()).ask("rule", answer) == (3, 7)
    assert len(compared) <= 50
