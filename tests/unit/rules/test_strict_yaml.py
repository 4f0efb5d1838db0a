"""Rule files say what they seem to say: a scalar comes back as written, or the file is refused."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import RuleError
from compatcheck.rules.strict_yaml import MAX_BYTES, load_strict, parse_strict

WORDS = st.one_of(
    st.text(string.ascii_letters + string.digits + "._-+:~e", min_size=1, max_size=8),
    st.sampled_from(
        [
            "2.10",
            "1e3",
            "1.0",
            "0x1F",
            "010",
            "0o7",
            "1_000",
            "yes",
            "No",
            "ON",
            "y",
            "True",
            "FALSE",
            "Null",
            "~",
            "null",
            "true",
            "false",
            ".inf",
            "-.INF",
            ".nan",
            "2024-01-02",
            "1:30",
            "+5",
            "-0",
            "-3",
            "1.",
            ".5",
            "0.5",
            "inf",
            "nan",
            "1e-05",
            "9007199254740993",
        ]
    ),
)


def same(value: Any, text: str) -> bool:
    """Tell whether a value is what a person reads in the text."""
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool):
        return text == str(value).lower()
    if value is None:
        return text in {"null", "~"}
    return repr(value) == text or (value == 0 and text == "-0")


@settings(max_examples=500)
@given(WORDS)
def test_a_plain_scalar_is_never_changed(text: str) -> None:
    try:
        data, _ = parse_strict(f"key: {text}\n", "f.yaml")
    except RuleError:
        return
    if isinstance(data["key"], dict):  # "a:"
        return
    assert same(data["key"], text)
    usual = yaml.safe_load(f"key: {text}\n")["key"]
    if not isinstance(data["key"], str) and usual is not None:
        assert usual == data["key"]


@settings(max_examples=150)
@given(
    st.recursive(
        st.one_of(st.text(max_size=12), st.integers(-(10**18), 10**18), st.booleans(), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_json_reads_as_json(data: Any) -> None:
    import json

    try:
        read, _ = parse_strict(json.dumps(data, indent=1), "f.yaml")
    except RuleError as error:
        assert "YAML" in error.message  # surrogate pairs and controls that YAML has no letters for
        return
    # Without libyaml the two halves of an escaped pair stay apart.
    assert json.loads(json.dumps(read)) == data


@pytest.mark.parametrize(
    "text",
    [
        "2.10",
        "1e3",
        "0x1F",
        "010",
        "yes",
        "No",
        "ON",
        "n",
        "True",
        "FALSE",
        "Null",
        ".inf",
        "2024-01-02",
        "1_0.5",
        "+.5",
    ],
)
def test_scalars_that_yaml_would_change_are_refused_with_file_line_and_key(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_strict(f"a: 1\nb:\n  - c: {text}\n", "f.yaml")
    assert str(caught.value.source) == "f.yaml:3 (b.0.c)"
    assert parse_strict(f"c: '{text}'", "f.yaml")[0] == {"c": text}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\na: 2", "the key 'a' twice"),
        ("a: &x 1\nb: *x", "an anchor"),
        ("? [a]\n: 1", "a key is a list"),
        ("a: !!str 5", "tags"),
        ("a: !!int '5'", "tags"),
        ("a: !env HOME", "tags"),
        ("a: !!set {b}", "tags"),
        ("a: !!python/object/apply:os.system ['true']", "tags"),
        ("a: [1", "not valid YAML"),
        ("--- 1\n--- 2", "several documents"),
        ("a: \x01", "not valid YAML"),
    ],
)
def test_constructs_that_hide_something_are_refused(text: str, part: str) -> None:
    with pytest.raises(RuleError, match=part):
        parse_strict(text, "f.yaml")


def test_deep_nesting_is_an_error_of_the_file() -> None:
    with pytest.raises(RuleError):
        parse_strict("[" * 3000, "f.yaml")
    with pytest.raises(RuleError, match="deep"):
        parse_strict("[" * 2000 + "]" * 2000, "f.yaml")


def test_every_path_has_its_line() -> None:
    data, lines = parse_strict("a:\n  b:\n    - 1\n    - c: x\n", "f.yaml")
    assert data == {"a": {"b": [1, {"c": "x"}]}}
    assert lines["a", "b", 1, "c"] == 4
    assert lines["a", "b", 0] == 3


def test_an_empty_file_holds_nothing() -> None:
    assert parse_strict("", "f.yaml") == (None, {})


def test_unreadable_files_are_rule_errors(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("a: é".encode("latin-1"))
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    for path in (latin, large, tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(RuleError) as caught:
            load_strict(path)
        assert caught.value.source is not None
        assert caught.value.source.path == str(path)
