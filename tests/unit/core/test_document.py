"""Tests for keys of documents."""

from __future__ import annotations

from compatcheck.core.document import enclosing_keys


def test_the_keys_around_a_key_are_those_of_its_sections() -> None:
    assert list(enclosing_keys("a.b.c")) == ["a.b", "a"]
    assert list(enclosing_keys("a")) == []


def test_of_a_key_of_thousands_of_levels_few_are_kept() -> None:
    around = list(enclosing_keys(".".join("a" * 20_000)))
    assert len(around) == 100
    assert max(map(len, around)) < 200
