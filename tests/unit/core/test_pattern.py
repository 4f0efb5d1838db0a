"""Expressions compiled when they are first used behave as compiled ones."""

from __future__ import annotations

import re

import pytest

from compatcheck.core.pattern import lazy_compile


def test_it_finds_what_a_compiled_one_finds() -> None:
    lazy = lazy_compile(rb"(?P<word>[a-z]+)\s", re.IGNORECASE)
    found = lazy.search(b"1 Ab c")
    assert found is not None
    assert (found["word"], lazy.pattern, lazy.flags & re.IGNORECASE) == (b"Ab", rb"(?P<word>[a-z]+)\s", re.IGNORECASE)
    assert lazy.sub(b"_", b"Ab c ") == b"__"


def test_it_is_compiled_once_and_not_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda text, flags=0: compiled.append(text) or real(text, flags))
    lazy = lazy_compile("a")
    assert compiled == []
    assert lazy.match("a")
    assert lazy.match("ab")
    assert compiled == ["a"]


def test_an_invalid_one_says_so_where_it_is_used() -> None:
    with pytest.raises(re.error):
        lazy_compile("(").match("")
