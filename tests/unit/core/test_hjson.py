"""The Hjson parser against the package that DeepSpeed itself uses."""

from __future__ import annotations

import json
from typing import Any

import hjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.errors import InputError
from compatcheck.core.hjson import locate_keys, parse_hjson

KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
WORDS = st.from_regex(r"[a-zA-Z_./-]{1,12}", fullmatch=True)
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e12, 1e12, allow_nan=False) | WORDS
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, TREES, min_size=1, max_size=5)


@given(DOCUMENTS)
def test_json_means_the_same_as_to_json(data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=1)
    assert parse_hjson(text, "x") == json.loads(text)


@given(DOCUMENTS)
def test_what_the_hjson_package_writes_reads_back(data: dict[str, Any]) -> None:
    text = hjson.dumps(data)
    assert parse_hjson(text, "x") == hjson.loads(text, object_pairs_hook=dict)


COMMENTS = st.sampled_from(["", "# word", "// word: 1", "/* a\nb */"])


@given(
    st.dictionaries(KEYS, st.integers(0, 10**9) | st.booleans(), min_size=1, max_size=5),
    st.lists(COMMENTS, min_size=6, max_size=6),
)
def test_comments_and_bare_keys_as_the_hjson_package_reads_them(data: dict[str, Any], comments: list[str]) -> None:
    lines = [
        "{",
        *(
            f"{comment}\n{key}: {json.dumps(value)}"
            for (key, value), comment in zip(data.items(), comments, strict=False)
        ),
        "}",
    ]
    text = "\n".join(lines)
    assert parse_hjson(text, "x") == hjson.loads(text, object_pairs_hook=dict) == data


@pytest.mark.parametrize(
    "text",
    ["{a: 1\n a: 2}", "{", "{a 1}", "[1", '{"a": "b', "{a: '''x", "{a: }"],
)
def test_broken_text_is_an_input_error_with_a_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_hjson(text, "x")
    assert caught.value.source is not None
    assert caught.value.source.line is not None


def test_lines_of_nested_keys() -> None:
    places = locate_keys('{\n  "a": {\n    "b": 1,\n    c: [2]\n  }\n}', "x")
    assert {key: place.line for key, place in places.items()} == {"a": 2, "a.b": 3, "a.c": 4}
