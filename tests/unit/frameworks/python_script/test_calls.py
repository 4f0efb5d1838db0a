"""What a script gives its calls is followed through names, as far as that takes no more than it says."""

from __future__ import annotations

import ast
from unittest.mock import patch

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.python_script import calls
from compatcheck.frameworks.python_script.calls import Script, parse_script


@pytest.mark.parametrize(
    "lines",
    [
        ["x0 = 'ab'", *(f"x{n} = x{n - 1} + x{n - 1}" for n in range(1, 40)), "TrainingArguments(output_dir=x39)"],
        [
            "d0 = dict(a=1)",
            *(f"d{n} = dict(a=d{n - 1}, b=d{n - 1})" for n in range(1, 40)),
            "TrainingArguments(deepspeed=d39, **d39)",
        ],
        ["d0 = dict(a=1)", *(f"d{n} = dict(**d{n - 1}, **d{n - 1})" for n in range(1, 40)), "TrainingArguments(**d39)"],
        ["n0 = args.x", *(f"n{n} = f(n{n - 1}, n{n - 1})" for n in range(1, 40)), "TrainingArguments(bf16=n39)"],
    ],
)
def test_names_that_double_are_given_up(lines: list[str]) -> None:
    script = Script(ast.parse("\n".join(lines)))
    visited = []
    follow = script._may_follow
    script._may_follow = lambda depth: (visited.append(depth), follow(depth))[1]  # type: ignore[method-assign]
    (call,) = [one for one in script.calls() if one.name == "TrainingArguments"]
    assert all(given.why is not None for given in call.keywords.values())
    assert not any(script.passes_on(word.value, "bf16", script.module) for word in call.node.keywords)
    assert len(visited) < 200_000


@pytest.mark.parametrize(
    "text", ["".join(f"x{number} = f({number})\n" for number in range(40_000)), "x = 1\n" + "# " + "y" * (1 << 20)]
)
def test_a_script_larger_than_any_is_said_and_not_read(text: str) -> None:
    with pytest.raises(InputError, match="holds more than"):
        parse_script(text, "train.py")


def test_lines_that_stand_for_those_of_a_notebook_do_not_count() -> None:
    assert len(parse_script("\n" * (1 << 21) + "x = 1\n", "train.ipynb").body) == 1


def test_one_value_in_thousands_of_calls_is_looked_through_a_few_times() -> None:
    script = Script(ast.parse(f"a = [{', '.join(f'x{n}' for n in range(2_000))}]\n" + "f(b=a)\n" * 2_000))
    first, *others = script.calls()
    assert {"a", "x0", "x1999"} <= first.keywords["b"].names
    assert len(others) == 1_999
    assert sum(len(one.keywords["b"].names) for one in others) < 500_000
    assert all(one.keywords["b"].why is not None for one in others)


def test_calls_in_one_another_are_written_out_a_few_times() -> None:
    row = "f(" * 80 + "x" + ")" * 80 + "\n"
    with patch.object(calls, "words_of", wraps=calls.words_of) as written:
        assert len(list(Script(ast.parse(row * 200)).calls())) == 16_000
    assert written.call_count < 8_000


def test_attributes_of_a_long_row_of_names_are_any() -> None:
    row = "a0 = x()\n" + "".join(f"a{n} = a{n - 1}\n" for n in range(1, 2_000))
    script = Script(ast.parse(row + "".join(f"a{n}.k{n} = 1\n" for n in range(2_000))))
    assert len(script.attributes) < 200_000
    assert ("a0", "") in script.attributes
    short = Script(ast.parse("a = x()\nb = a\nb.k = 1\n"))
    assert short.attributes == {("a", "k"), ("b", "k")}


@pytest.mark.parametrize("text", [f"x = 0x{'f' * 6000}\n", "x = '\ud800'\n"], ids=["integer", "surrogate"])
def test_what_python_itself_does_not_take_is_said(text: str) -> None:
    with pytest.raises(InputError, match="is no Python that can be parsed"):
        parse_script(text, "train.py")
