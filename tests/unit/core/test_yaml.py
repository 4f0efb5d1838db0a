"""YAML of machines keeps its text and its lines, and nothing in it grows without bound."""

from __future__ import annotations

import time

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.textfile import MAX_DEPTH
from compatcheck.core.yaml import YamlList, YamlMap, parse_yaml


def test_scalars_stay_as_they_are_written() -> None:
    root = parse_yaml("version: 2.10\nflag: no\nempty:\nnull: ~\nquoted: '~'\nlist: [1.0, '']\n", "x")
    assert isinstance(root, YamlMap)
    assert root == {
        "version": "2.10",
        "flag": "no",
        "empty": None,
        "": None,
        "quoted": "~",
        "list": ["1.0", ""],
    }


def test_every_entry_knows_its_line() -> None:
    root = parse_yaml("a: 1\nlist:\n  - x\n\n  - b: 2\n    c: 3\n", "x")
    assert isinstance(root, YamlMap)
    items = root["list"]
    assert isinstance(items, YamlList)
    assert root.lines == {"a": 1, "list": 2}
    assert items.lines == [3, 5]
    assert isinstance(items[1], YamlMap)
    assert items[1].lines == {"b": 5, "c": 6}


def test_aliases_and_merge_keys_are_followed() -> None:
    root = parse_yaml("base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\nagain: *b\n", "x")
    assert root == {"base": {"x": "1", "y": "2"}, "other": {"x": "1", "y": "3"}, "again": {"x": "1", "y": "2"}}


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("a: 1\na: 2\n", "twice", 2),
        ("a: [1, 2\n", "not valid YAML", 2),
        ("a: 1\n---\nb: 2\n", "several documents", 2),
        ("? [1]\n: 2\n", "key is a list", 1),
        ("a: &x [*x]\n", "it stands in", 1),
        ("a: *x\n", "no anchor", 1),
        ("a: {<<: 3}\n", "no mapping", 1),
        ("a: " + "[" * 100_000, "levels deep", 1),
        ("- " * (MAX_DEPTH + 2) + "x", "levels deep", 1),
    ],
)
def test_what_is_refused_is_said_with_its_line(text: str, reason: str, line: int) -> None:
    with pytest.raises(InputError, match=reason) as error:
        parse_yaml(text, "f.yml")
    assert error.value.source is not None
    assert error.value.hint
    assert error.value.source.line == line


def test_aliases_that_expand_are_refused_at_once() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for n in range(1, 12):
        text += f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n"
    before = time.process_time()
    with pytest.raises(InputError, match="values"):
        parse_yaml(text, "bomb.yml")
    assert time.process_time() - before < 1
