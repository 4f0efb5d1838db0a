"""Entries and keys of a TOML file are found at their lines."""

from __future__ import annotations

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.toml import locate_entries, locate_key, parse_toml
from tests.effort import at_most

TEXT = """\
version = 1 # [[package]]

[[package]]
name = "a"
version = "1"
[package.metadata]
name = "not this"

[[ package ]] # comment
version = "0"
name = 'b'
[other]
name = "c"
[[package]]
name = "a"
version = "2"
"""


def test_entries() -> None:
    assert locate_entries(TEXT, "package") == {
        ("a", None): 4,
        ("a", "1"): 4,
        ("b", None): 11,
        ("a", "2"): 15,
    }


def test_keys_and_items() -> None:
    text = """[project]
name='x'
dependencies = [
  "a>=1",
  'b; c == "d"',
  "e; f == \\"g\\""]
[x]
dependencies = ['z']
"""
    assert locate_key(text, "project", "dependencies") == 3
    assert locate_key(text, "project", "dependencies", "a>=1") == 4
    assert locate_key(text, "project", "dependencies", 'b; c == "d"') == 5
    assert locate_key(text, "project", "dependencies", 'e; f == "g"') == 6
    assert locate_key(text, "project", "dependencies", "gone") == 3
    assert locate_key(text, "x", "dependencies", "z") == 8
    assert locate_key(text, "project", "absent") is None


def test_a_key_of_thousands_of_levels_is_refused_before_it_is_parsed(monkeypatch) -> None:
    tomllib = pytest.importorskip("tomllib")

    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("parsed"))
    for key in (".".join("a" * 10_000), " . ".join(['"a"'] * 200), "[tool." + "a.'b'." * 60 + "c]\nx"):
        with pytest.raises(InputError, match=r"line 2|:2: has a key of more than 100 levels"):
            parse_toml(f"x = 1\n{key} = 1\n", "a.toml")


def test_dots_that_are_no_levels_are_read() -> None:
    text = f'a = "{"." * 300}"\nb = """\n{"1." * 99}\n"""\n{"c." * 99}d = 1\n'
    assert parse_toml(text, "a.toml")["a"] == "." * 300


@pytest.mark.parametrize("text", ["x = 0x{}", "a = [1, {{b = [0b{}]}}]", "[[t]]\n[t.s]\nx.y = 0o{}"])
def test_an_integer_of_thousands_of_digits_is_refused_however_it_is_written(text: str) -> None:
    assert parse_toml(text.format("1" * 3000), "a.toml")
    assert parse_toml(f"x = '0x{'1' * 30_000}'", "a.toml")  # a text
    with pytest.raises(InputError, match="integer of thousands of digits"):
        parse_toml(text.format("1" * 15_000), "a.toml")


@pytest.mark.parametrize("unit", ['"\\', "\\", "'\"", '"', '\\"'])
def test_a_string_without_end_in_a_longer_text_is_looked_through_once(unit: str) -> None:
    end = '[project]\ndependencies = [\n  \'torch\',\n  "x\\"y"\n]\n'
    text = f"a = '''\n{unit * 100_000}\n'''\n{end}"
    with at_most(6):
        assert locate_key(text, "project", "dependencies", "torch") == 6
        assert locate_key(text, "project", "dependencies", 'x"y') == 7
