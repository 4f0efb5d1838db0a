"""Entries and keys of a TOML file are found at their lines."""

from __future__ import annotations

from compatcheck.core.toml import locate_entries, locate_key

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
