"""The language is a whitelist: whatever the text, the answer is code or a RuleError."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import RuleError
from compatcheck.rules.expression import write
from compatcheck.rules.syntax import MAX_INTEGER, MAX_LENGTH, MAX_NODES, dotted_name, functions, parse, parse_tree

FRAGMENTS = st.sampled_from(
    [
        "training.zero_stage",
        "==",
        "3",
        "and",
        "or",
        "not",
        "in",
        "is",
        "None",
        "True",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ".",
        "+",
        "-",
        "*",
        "**",
        "/",
        "//",
        "%",
        "<",
        "<=",
        "1",
        "2.5",
        "1e400",
        "'a'",
        '"b"',
        "lambda",
        "x",
        ":",
        "if",
        "else",
        "for",
        "await",
        "yield",
        ":=",
        "f''",
        "b''",
        "...",
        "env",
        "declared",
        "min",
        "max",
        "table",
        "\n",
        "\\",
        "#",
        ";",
        "@",
        "~",
        "&",
        "|",
        "^",
        "<<",
        "0x1",
        "1_0",
        "1j",
        "__import__",
        "é",
        "\x00",
    ]
)


@settings(max_examples=500)
@given(st.one_of(st.text(max_size=40), st.lists(FRAGMENTS, max_size=14).map(" ".join)))
@example("(" * 300)
@example("-" * 1500 + "1")
@example("not " * 400 + "a.b")
@example("a" + ".b" * 900)
@example("\ud800")
@example("1" * 1900)
@example("a.b in ()")
def test_any_text_is_code_or_a_rule_error(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = parse(text)
        except RuleError:
            return
    assert json.loads(json.dumps(code)) == code
    assert parse(write(code)) == code


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__",
        "'a'.join",
        "[1 for x in y]",
        "lambda: 1",
        "f.a if f.b",
        "f'{f.a}'",
        "b'a'",
        "1j",
        "...",
        "f.a[0]",
        "{**f.a}",
        "{'a': 1}",
        "~f.a",
        "f.a & f.b",
        "(x := 1)",
        "min(*f.a)",
        "min(a=1)",
        "min()",
        "ceil(1, 2)",
        "len(f.a)",
        "env(f.a + 'b')",
        "declared(3)",
        "installed(env('A'), '>=1')",
        "",
        "f.a; f.b",
        "1e400",
        f"{MAX_INTEGER + 1}",
    ],
)
def test_everything_outside_the_language_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        parse(text)


def test_size_is_bounded() -> None:
    parse(" and ".join(["f.a"] * ((MAX_NODES - 4) // 4)))
    with pytest.raises(RuleError, match="nodes"):
        parse(" and ".join(["f.a"] * MAX_NODES))
    with pytest.raises(RuleError, match="longer"):
        parse("f.a" + " " * MAX_LENGTH)


def test_the_caret_stands_under_the_offending_place() -> None:
    with pytest.raises(RuleError) as caught:
        parse("f.a and len(f.b)")
    lines = caught.value.message.splitlines()
    assert lines[1][lines[2].index("^") :].startswith("len(")


def test_chains_and_quoted_names_mean_what_python_means() -> None:
    assert parse("1 < f.x <= 3") == parse("1 < f.x and f.x <= 3")
    assert parse("declared(training.zero_stage)") == parse("declared('training.zero_stage')")
    assert parse("f.x in (1, 2)") == parse("f.x in {1, 2}")
    assert dotted_name(parse_tree("a.b.c")) == "a.b.c"
    assert dotted_name(parse_tree("1")) is None


def test_functions_that_stand_for_an_expression_take_nothing_and_all_are_explained() -> None:
    for name, one in functions().items():
        assert one.meaning, name
        if one.expression:
            assert one.arguments == 0
            parse(f"{name}()")
    assert functions()["min"].arguments is None
    assert "training.gradient_checkpointing" in functions()["recomputed"].expression
