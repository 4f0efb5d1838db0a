"""JSON of machines is read strictly, with the line of an entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.json import MAX_DEPTH, Lines, parse_json, read_json


def test_utf_16_of_powershell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('[{"name": "é"}]'.encode("utf-16"))
    assert read_json(str(path)).data == [{"name": "é"}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": [1,', "not valid JSON"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "levels deep"),
        ("[" * 200_000, "levels deep"),
        ("1" * 5000, "thousands of digits"),
    ],
)
def test_what_is_refused_is_said(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        parse_json(text, "f.json")
    assert error.value.hint


def test_equal_texts_have_their_lines_in_order() -> None:
    text = '{"purl": "a",\n "x": {"purl": "b"},\n "y": [{"purl" : "a"}],\n "z": {"purl": "c\\u0040d"}}'
    lines = Lines(text, "purl")
    assert [lines.next(value) for value in ("a", "b", "a", "c@d", "missing", None)] == [1, 2, 3, 4, None, None]
