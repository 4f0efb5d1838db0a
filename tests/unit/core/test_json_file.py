"""JSON is read strictly, in every encoding of Unicode, and knows its lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import Lines, locate_members, parse_json, read_json
from compatcheck.core.textfile import MAX_DEPTH

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"é": 1}', encoding=encoding)
    assert read_json(str(path)).data == {"é": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1,\n "a": 2}', "the key 'a' twice"),
        ('{\n"a": }', "a.json:2"),
        ('{"a": [1,', "is not valid JSON"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "levels deep"),
        ("[" * 200_000, "levels deep"),
        ("9" * 5000, "thousands of digits"),
        (" \n", "is empty"),
    ],
)
def test_malformed_files_say_what_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        read_json(str(path))
    assert caught.value.hint


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(InputError, match=r"a\.json:2: is not UTF-8"):
        read_json(str(path))


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(
    st.dictionaries(
        KEYS,
        st.dictionaries(KEYS, st.lists(st.dictionaries(KEYS, KEYS, max_size=2), max_size=2), max_size=4),
        max_size=4,
    )
)
def test_members_stand_where_json_writes_them(data: dict[str, dict[str, object]]) -> None:
    text = json.dumps(data, indent=1)
    lines = text.split("\n")
    found = locate_members(text)
    written = {(json.dumps(outer)[1:-1], json.dumps(key)[1:-1]) for outer, members in data.items() for key in members}
    assert set(found) == written
    for (_, key), line in found.items():
        assert lines[line - 1].strip().startswith(f'"{key}":')
    assert parse_json(text, "x") == data


def test_equal_texts_have_their_lines_in_order() -> None:
    text = '{"purl": "a",\n "x": {"purl": "b"},\n "y": [{"purl" : "a"}],\n "z": {"purl": "c\\u0040d"}}'
    lines = Lines(text, "purl")
    assert [lines.next(value) for value in ("a", "b", "a", "c@d", "missing", None)] == [1, 2, 3, 4, None, None]
