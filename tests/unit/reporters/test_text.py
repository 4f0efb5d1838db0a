"""The report for a terminal."""

from __future__ import annotations

from textwrap import wrap

from hypothesis import given
from hypothesis import strategies as st

from compatcheck.reporters.text import fill


@given(
    st.lists(st.text("ab-—é/.", min_size=1, max_size=30), max_size=40).map(" ".join),
    st.integers(min_value=1, max_value=80),
)
def test_lines_are_those_of_textwrap_at_blanks(text: str, width: int) -> None:
    assert fill(text, width) == wrap(text, width, break_long_words=False, break_on_hyphens=False)


def test_a_longer_word_has_a_line_of_its_own() -> None:
    assert fill("see  /a/path/that/is/long\nfor more", 10) == ["see", "/a/path/that/is/long", "for more"]
