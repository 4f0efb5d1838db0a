"""What is chosen of extras and groups, and how the command line lies over a run."""

from __future__ import annotations

import pytest

from compatcheck.core.environment import Package
from compatcheck.core.errors import UsageError
from compatcheck.core.requirement import add_unselected
from compatcheck.core.selection import Choice, Selection, offer, parse_python, split_arguments
from compatcheck.core.source import Source

TRAIN, BENCH = Choice("extra", "train"), Choice("group", "bench")


def test_names_are_compared_as_they_are_normalised() -> None:
    offered = offer(["Train", "flash_attn"], ["bench"])
    assert Selection(extras=("TRAIN",)).choose(offered) == {TRAIN}
    assert Selection(groups=("Bench",)).choose(offered) == {BENCH}
    assert Selection(all_extras=True).choose(offered) == {TRAIN, Choice("extra", "flash-attn")}
    assert Selection(extras=("bench",)).choose(offered) == frozenset()


def test_the_command_line_lies_over_a_run() -> None:
    run = Selection(extras=("a",), groups=("g",), python="3.11", stage="s", script_arguments=("8",))
    assert Selection().over(run) == run
    assert Selection(extras=("b",)).over(run) == run._replace(extras=("b",))
    assert Selection(all_extras=True).over(run) == run._replace(extras=(), all_extras=True)
    assert Selection(extras=("b",)).over(Selection(all_extras=True)) == Selection(extras=("b",))
    assert Selection(script_arguments=()).over(run) == run._replace(script_arguments=())


@pytest.mark.parametrize("text", ["3", "3.", "2.7", "3.11.7.1", "3.x", "py311", ""])
def test_what_is_no_python_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="is no version of Python"):
        parse_python(text)


def test_arguments_are_split_as_a_shell_does() -> None:
    assert parse_python("3.11.7") == "3.11.7"
    assert split_arguments("8 'my model'") == ("8", "my model")
    with pytest.raises(UsageError, match="no closing quotation"):
        split_arguments("'open")


def test_several_choices_bring_any_of_their_versions() -> None:
    def bring(more: frozenset[Choice]) -> dict[str, Package]:
        versions = {TRAIN: "2.6.0", BENCH: "2.5.1"}
        brought = {"torch": Package("torch", versions[next(iter(more))], Source("lock"))}
        return {**brought, "numpy": Package("numpy", "9", Source("lock"))}

    found = add_unselected({"numpy": Package("numpy", "2.0", Source("lock"))}, {TRAIN, BENCH}, bring)
    assert found["numpy"] == Package("numpy", "2.0", Source("lock"))
    torch = found["torch"]
    assert (torch.version, torch.specifier) == (None, "==2.6.0 || ==2.5.1")
    assert (torch.is_optional, torch.brought_by) == (True, (TRAIN, BENCH))


def test_a_hostile_number_of_choices_is_taken_together() -> None:
    asked: list[int] = []

    def bring(more: frozenset[Choice]) -> dict[str, Package]:
        asked.append(len(more))
        return {f"p{choice.name}": Package(f"p{choice.name}", "1", Source("lock")) for choice in more}

    found = add_unselected({}, offer(map(str, range(5000))), bring)
    assert len(found) == 5000
    assert len(asked) == 101


def test_choices_that_all_bring_the_same_are_not_looked_at_one_by_one_without_end() -> None:
    asked: list[int] = []
    brought = {f"p{number}": Package(f"p{number}", "1", Source("lock")) for number in range(10_000)}

    def bring(more: frozenset[Choice]) -> dict[str, Package]:
        asked.append(len(more))
        return brought

    assert len(add_unselected({}, offer(map(str, range(100))), bring)) == 10_000
    assert asked == [1, 1, 1, 1, 1, 95]
