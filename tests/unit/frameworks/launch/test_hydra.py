"""Hydra's overrides: keys, signs, values. The values are those Hydra 1.3.8 itself gave for the same words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.source import Source
from compatcheck.frameworks.launch.hydra import gaps_of_choices, gaps_of_groups, parse_overrides, parse_value
from tests.effort import at_most
from tests.unit.frameworks.launch_script.written_commands import word


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("1e-6", 1e-6),
        ("1.5", 1.5),
        (".5", 0.5),
        ("True", True),
        ("false", False),
        ("null", None),
        ("text", "text"),
        ("'quoted'", "quoted"),
        ('"a b"', "a b"),
        ("[]", []),
        ("[a,1,true]", ["a", 1, True]),
        ("['wandb']", ["wandb"]),
        ("[[1,2],[3]]", [[1, 2], [3]]),
        ("{a:1,b:[x]}", {"a": 1, "b": ["x"]}),
        ("{}", {}),
        ("/data/train.parquet", "/data/train.parquet"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("1_000", 1000),
        ("007", "007"),
        ("", ""),
        ("[ a , b ]", ["a", "b"]),
        ("${a.b}", "${a.b}"),
        ("1e3", 1000.0),
        ("nan_value", "nan_value"),
    ],
)
def test_values(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["[1,2", "'open", "{a:1", "[1]x", "{a}"])
def test_values_that_hydra_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(has|is) "):
        parse_value(text)


def test_a_command_line_is_taken_apart() -> None:
    words = [
        "--config-path=conf",
        "--config-name",
        "main",
        "a.b=1",
        "+a.c=[x]",
        "++d=null",
        "~e.f",
        "a.b=2",
        "g/h=i",
        "n=$N",
        "$MORE",
        "?",
    ]
    found = parse_overrides(map(word, words))
    assert {key: argument.value for key, argument in found.values.items() if argument.why is None} == {
        "a.b": 2,
        "a.c": ["x"],
        "d": None,
    }
    assert found.values["n"].why == "depends on $N, which the script does not tell"
    assert found.values["e.f"].why == "takes e.f out of the configuration"
    assert found.groups["g/h"].value == "i"
    assert (found.config_path, found.config_name) != (None, None)
    assert [entry.written for entry in found.unknown] == ["$MORE"]
    assert [entry.written for entry, _ in found.refused] == ["?"]


def test_a_removed_key_may_be_set_again_and_the_other_way_round() -> None:
    taken = parse_overrides(map(word, ["a.b=1", "~a", "~g/h"]))
    assert {key: one.why for key, one in taken.values.items()} == {"a": "takes a out of the configuration"}
    assert taken.groups["g/h"].why == "takes g/h out of the configuration"
    assert parse_overrides(map(word, ["~a", "a=1"])).values["a"].value == 1
    again = parse_overrides(map(word, ["a.b=1", "~a", "a.c=2"])).values
    assert {key: one.value for key, one in again.items() if one.why is None} == {"a.c": 2}


def test_choices_of_groups_leave_gaps_but_for_those_of_hydra_itself() -> None:
    found = parse_overrides(map(word, ["+actor/model=big", "~critic/model", "a@b=c", "hydra/launcher=local", "x/y=$N"]))
    assert [(gap.source.key, gap.why) for gap in gaps_of_groups(found, word("x").source)] == [
        ("actor/model", "chooses the defaults of big, which nobody read"),
        ("critic/model", "takes critic/model out of the configuration"),
        ("a@b", "chooses the defaults of c, which nobody read"),
        ("x/y", "depends on $N, which the script does not tell"),
    ]


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    try:
        parse_value(text)
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("listed", "opens"),
    [
        (["ppo_trainer", "_self_"], []),
        ([{"actor@a.actor": "dp_actor"}], []),
        ([{"override actor@a.actor": "mine"}], ["a.actor.defaults"]),
        ([{"optional /algo": ["one", "two"]}], ["algo.defaults", "algo.defaults"]),
        ([{"algo": None}, {"hydra/launcher": "slurm"}], []),
        (["algo/grpo", "rollout@_global_"], ["algo.defaults", None]),
        (["base", "_self_", "late"], [None]),
    ],
)
def test_choices_in_a_files_own_list_are_said(listed: list[Any], opens: list[str | None]) -> None:
    gaps = gaps_of_choices({"defaults": listed}, Source("run.yaml"), {"dp_actor"})
    assert [gap.key for gap in gaps] == opens


def test_a_long_list_of_files_is_gone_through_once() -> None:
    data = {"defaults": [f"a{number}" for number in range(20_000)]}
    with at_most(2):
        assert gaps_of_choices(data, Source("run.yaml"), set()) == ()
