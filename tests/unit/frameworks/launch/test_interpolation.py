"""Interpolation, held against what OmegaConf 2.3.1 makes of the same files (resolvers add, mul, div and max registered)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.frameworks.launch.hydra import parse_overrides
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument
from tests.unit.frameworks.launch_script.written_commands import word

OPTIONS = {
    "a.length": 4096,
    "a.micro": 2,
    "a.b.tp": 4,
    "a.b.cp": 2,
    "name": "Qwen/Qwen3-4B",
    "half": 0.5,
    "whole": "${a.length}",
}
RESOLVED = {
    "${a.length}": 4096,
    "${whole}": 4096,
    "${mul:${a.length}, ${a.micro}}": 8192,
    "${mul:${mul:${a.b.tp}, ${a.b.cp}}, 2}": 16,
    "${add:${a.micro},1}": 3,
    "${div:${a.length},${a.micro}}": 2048.0,
    "${max:${a.b.tp},${a.b.cp}}": 4,
    "${.tp}": 4,
    "${..length}": 4096,
    "${mul:${..length},${.cp}}": 8192,
    "${...half}": 0.5,
    "logs/${name}-${a.b.tp}": "logs/Qwen/Qwen3-4B-4",
    "${oc.select:a.micro,7}": 2,
    "${oc.select:a.none,7}": 7,
    "${oc.select:a.none}": None,
    "${oc.select:a.none,${a.micro}}": 2,
    "plain": "plain",
}


def settle(written: object, *, absent_is_null: bool = False) -> Argument:
    options = {key: Argument(value, None) for key, value in {**OPTIONS, "a.b.it": written}.items()}
    return follow_all(options, absent_is_null=absent_is_null)["a.b.it"]


@pytest.mark.parametrize("written", RESOLVED)
def test_a_value_is_what_omegaconf_resolves(written: str) -> None:
    found = settle(written)
    assert (found.value, found.why) == (RESOLVED[written], None)
    assert type(found.value) is type(RESOLVED[written])


@pytest.mark.parametrize(
    "written",
    [
        "${oc.env:LENGTH}",
        "${mul:${oc.env:A},2}",
        "${pow:2,3}",
        "${mul:1,2,3}",
        "${div:1,0}",
        "${mul:${name},2}",
        "${a",
        "${a.b.it}",
    ],
)
def test_what_only_the_run_resolves_is_not_known(written: str) -> None:
    found = settle(written)
    assert found.value is None
    assert found.why is not None
    assert found.why.endswith("which only the run resolves")


def test_what_points_nowhere_is_not_known_or_null() -> None:
    assert settle("${c.d}").why == "is that of c.d, which is not stated"
    assert settle("${c.d}", absent_is_null=True) == Argument(None, None)
    assert settle("x${c.d}", absent_is_null=True).why == "is x${c.d}, which only the run resolves"


def test_words_of_a_command_are_followed() -> None:
    values = parse_overrides(map(word, ["a=${b}", "b=3", "c=${d.e}"])).values
    assert follow_all(values)["a"].value == 3
    assert follow_all(values)["c"].why == "is that of d.e, which is not stated"
    circle = parse_overrides(map(word, ["a=${b}", "b=${a}"])).values
    assert follow_all(circle)["a"].why is not None


@given(st.text(alphabet="${}.:,ab 1", max_size=40))
def test_any_text_gives_a_value_or_a_reason(written: str) -> None:
    found = settle(written)
    assert found.why is None or found.value is None


@pytest.mark.parametrize(("first", "doubled"), [("ab", "${x%d}${x%d}"), (2, "${mul:${x%d}, ${x%d}}")])
def test_values_that_double_are_given_up(first: object, doubled: str) -> None:
    values = {"x0": Argument(first, None)}
    values |= {f"x{n}": Argument(doubled % (n - 1, n - 1), None) for n in range(1, 60)}
    found = follow_all(values)
    assert found["x3"].value == ("ab" * 8 if first == "ab" else 256)
    assert found["x59"].why is not None


@pytest.mark.parametrize("depth", [60, 2_000, 40_000])
def test_interpolations_inside_of_one_another_end(depth: int) -> None:
    options = {"a": Argument("${" * depth + "b" + "}" * depth, None), "b": Argument("b", None)}
    found = follow_all(options)["a"]
    assert (found.value == "b") == (depth == 60)
    assert len(found.why or "") < 300


def test_many_keys_that_point_to_one_another_are_followed_each_once() -> None:
    count = 20_000
    options = {f"k{n}": Argument(f"${{k{n + 1}}}", None) for n in range(count)} | {f"k{count}": Argument(1, None)}
    found = follow_all(options)
    assert found[f"k{count - 1}"].value == 1
    assert all(one.value == 1 or one.why for one in found.values())
