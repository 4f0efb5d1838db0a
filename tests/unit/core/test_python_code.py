"""Python that is parsed says nothing on standard error, and what is none is an exception of its own."""

from __future__ import annotations

import warnings

import pytest

from compatcheck.core import python_code
from compatcheck.core.python_code import parse_python


def test_warnings_about_the_code_are_not_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_python("x = 1\nif x is 1: y = '\\d'").body
        assert parse_python("1if x else 2", "eval").body


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        parse_python("x =")
    with pytest.raises((ValueError, SyntaxError)):
        parse_python("x = " + "9" * 4400)


@pytest.mark.parametrize("code", ["from {} import b", "import a, \\\n{}", "import {} as b"])
def test_a_module_with_endless_parts_is_refused(code: str) -> None:
    written = code.format(".".join("a" * 501))
    parse_python(written)
    with pytest.raises(RecursionError):
        parse_python(written.replace("a.", "a.a.", 1))
    with pytest.raises(RecursionError):
        parse_python(written.replace("a.", "a.a.", 1).encode())


@pytest.mark.parametrize("before", ["", "#!/usr/bin/python\n", "# a\r", "\r\n"])
def test_only_encodings_of_text_are_declared(before: str) -> None:
    assert parse_python(f"{before}# -*- coding: latin-1 -*-\n".encode() + b"x = '\xe9'").body
    assert parse_python(f"{before}# coding: utf-8-unix\n".encode())
    with pytest.raises(SyntaxError, match="declares the encoding 'punycode', which is not read"):
        parse_python(f"{before}# coding: punycode\nx = 1".encode())
    assert parse_python(f"x = 1\n\n{before}# coding: punycode\n".encode()).body


@pytest.mark.parametrize("code", ["x = 0x{}", "f(a=-0X_{})", "x[0b{}] = 1"])
def test_an_integer_of_thousands_of_digits_is_refused_however_it_is_written(code: str) -> None:
    assert parse_python(code.format("1" * 3000)).body
    assert parse_python(f"x = '0x{'1' * 30_000}'").body  # a text
    with pytest.raises(ValueError, match="integer of thousands of digits"):
        parse_python(code.format("1" * 15_000))
    with pytest.raises(ValueError, match="integer of thousands of digits"):
        parse_python(code.format("1" * 15_000).encode())


def test_a_tree_that_would_fill_the_memory_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_code, "_MOST_WORDS", 40)
    with pytest.raises(ValueError, match="more than 40 words and signs"):
        parse_python("f(1)\n" * 11)
    assert len(parse_python("f(1)\n" * 10).body) == 10
    assert parse_python("'" + "x" * 400 + "'")


def test_a_text_with_thousands_of_expressions_is_not_parsed() -> None:
    with pytest.raises(ValueError, match="more than 5,000 opening braces"):
        parse_python("x = f'" + "{a} " * 5_001 + "'\n")
    assert parse_python("x = [" + "{}, " * 5_001 + "]\n")
