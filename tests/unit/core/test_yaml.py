"""YAML of machines keeps its text and its lines, and nothing in it grows without bound."""

from __future__ import annotations

import string
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core import yaml as yaml_reader
from compatcheck.core.errors import InputError
from compatcheck.core.textfile import MAX_DEPTH
from compatcheck.core.yaml import YAML_1_1, YamlList, YamlMap, locate_keys, parse_yaml
from tests import ROOT
from tests.effort import at_most

FILES = [path for folder in ("fixtures", "rules") for path in sorted((ROOT / folder).rglob("*.y*ml"))]


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
        ("a: &a {x: 1}\nb: {<<: *a,\n <<: {x: 2}}\n", "'x' twice, and which one wins", 3),
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
    with at_most(10), pytest.raises(InputError, match="values"):
        parse_yaml(text, "bomb.yml")


def test_a_long_list_is_refused_where_it_passes_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "MAX_VALUES", 1000)
    with pytest.raises(InputError, match=r"a.yml:1 \(a.\d+\): holds more than 1000 values"):
        parse_yaml(f"a: [{'1,' * 5000}1]\n", "a.yml")


def same(ours: Any, theirs: Any) -> bool:
    """Compare as text, so that 1, 1.0 and True differ and nan equals itself; the order of keys counts."""
    return repr(_plain(ours)) == repr(theirs)


def _plain(value: Any) -> Any:
    if isinstance(value, YamlMap):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, YamlList) else value


@pytest.mark.parametrize("loader", ["read", "words"])
def test_yaml_1_1_is_what_the_programs_read(loader: str) -> None:
    texts = [path.read_text() for path in FILES[::3]] if loader == "read" else WORDS
    for text in texts:
        try:
            theirs = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError):
            with pytest.raises(InputError):
                parse_yaml(text, "x", YAML_1_1)
        else:
            assert same(parse_yaml(text, "x", YAML_1_1), theirs), text


PLAIN = (
    "yes No on y ~ null Null 010 0o10 0x1F 0b11 0b_ 1_000 1:30 1e5 "
    "1.e5 1.0e+5 .5 .inf -.INF .nan + - = 2.10 1. '1' 2024-01-02 é 𝒳"
)
TAGGED = (
    "!!str 5",
    "!!int '5'",
    "!!int ''",
    "!!float x",
    "!!bool x",
    "!!timestamp x",
    "!!binary aGk=",
    "! 5",
    "!!python/none x",
)
WORDS = [f"k: {word}\n{word}: v\n" for word in (*PLAIN.split(), *TAGGED, "2024-13-02", "2024-01-02T03:04:05Z")]


@settings(max_examples=300)
@given(st.text(string.digits + "eE+-._:xobTZ~=<yYnNfFtrualse", min_size=1, max_size=8))
def test_plain_scalars_of_yaml_1_1(word: str) -> None:
    text = f"k: {word}\n"
    try:
        theirs = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError):
        return
    assert same(parse_yaml(text, "x", YAML_1_1), theirs)


def test_what_merge_keys_bring_loses() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {w: 5, <<: [*a, *b], x: 6}\nd: {<<: *a, <<: {y: 2, z: 0}}\n"
    assert _plain(parse_yaml(text, "x", YAML_1_1)) == yaml.safe_load(text)  # their order differs between releases
    assert parse_yaml(text, "x")["c"].lines == {"y": 3, "z": 3, "x": 3, "w": 3}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n  b: 1\n  b: 2\n", "x:3 (a.b)"),
        ("a:\n  - b: 2024-99-99\n", "x:2 (a.0.b)"),
        ("a: {b: !env HOME}\n", "x:1 (a.b)"),
        ("a: !!set {b}\n", "x:1 (a)"),
    ],
)
def test_errors_name_the_key(text: str, place: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x", YAML_1_1)
    assert str(caught.value.source) == place


@pytest.mark.parametrize("path", FILES[::7], ids=lambda path: path.stem)
def test_keys_stand_where_the_plain_parser_finds_them(path: Any) -> None:
    text = path.read_text()
    wanted: dict[str, tuple[int, int, int, int]] = {}
    pending: list[tuple[str, Any]] = [("", yaml.compose(text, Loader=yaml.SafeLoader))]  # counts characters in Python
    while pending:
        prefix, node = pending.pop()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            mark, start, end = key.start_mark, value.start_mark, value.end_mark
            wanted.setdefault(f"{prefix}{key.value}", (mark.line + 1, mark.index, start.index, end.index))
            pending.append((f"{prefix}{key.value}.", value))
    assert {key: tuple(place) for key, place in locate_keys(text, "x").items()} == wanted


def test_places_count_characters() -> None:
    text = "é: '𝒳'\r\nb: 𝒳𝒳 # c\r\nc: [é]\r\n"
    places = locate_keys(text, "x")
    assert [text[place.start : place.end] for place in places.values()] == ["'𝒳'", "𝒳𝒳", "[é]"]
    assert [text[place.key] for place in places.values()] == ["é", "b", "c"]


def test_a_number_of_endless_sixtieths_is_refused() -> None:
    for end in ("1", "1.0"):
        with pytest.raises(InputError, match="more than 100 parts to the base of sixty"):
            parse_yaml("a: 1:" + "59:" * 200_000 + end, "x", YAML_1_1)
    assert parse_yaml("a: 190:20:30", "x", YAML_1_1) == {"a": 685230}
    assert parse_yaml("a: " + "x:" * 200 + "x", "x", YAML_1_1)["a"].startswith("x:x")
    assert parse_yaml("a: !!str 1:" + "59:" * 200 + "1", "x", YAML_1_1)["a"].startswith("1:59")


@pytest.mark.parametrize("text", ["0x{}", "0b{}", "0{}", "!!int 0x{}"])
def test_an_integer_of_thousands_of_digits_is_refused_however_it_is_written(text: str) -> None:
    assert parse_yaml(f"a: {text.format('1' * 3000)}", "a.yaml", YAML_1_1)
    for written in (f"a: {text}", f"{{? {text} : 1}}"):
        if "!!" in text and "?" in written:
            continue
        with pytest.raises(InputError, match="integer of thousands of digits"):
            parse_yaml(written.replace(text, text.format("1" * 15_000)), "a.yaml", YAML_1_1)
