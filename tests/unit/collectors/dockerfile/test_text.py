"""Instructions of a Dockerfile: continuation, comments, here-documents, variables; each with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.collectors.dockerfile.text import read_assignments, read_instructions, substitute


def test_continued_lines_keep_their_numbers() -> None:
    text = "# c\nFROM a\n\nRUN x \\\n  # comment\n\n  y \\\n  z\nENV A=1\n"
    instructions = list(read_instructions(text))
    assert [(entry.name, entry.line) for entry in instructions] == [("FROM", 2), ("RUN", 4), ("ENV", 9)]
    run = instructions[1].text
    assert run.line(run.content.index("y")) == 7
    assert run.line(run.content.index("z")) == 8


def test_here_documents_belong_to_their_instruction() -> None:
    text = "FROM a\nRUN <<EOF\npip install b\nFROM c\nEOF\nRUN <<-'X' cat\n\ty\n\tX\nCMD x\n"
    instructions = list(read_instructions(text))
    assert [entry.name for entry in instructions] == ["FROM", "RUN", "RUN", "CMD"]
    assert instructions[1].documents[0].content == "pip install b\nFROM c"
    assert instructions[1].documents[0].line(0) == 3
    assert instructions[2].documents[0].content == "\ty"


def test_the_escape_directive_is_followed() -> None:
    text = "# escape=`\nFROM a\nRUN x `\n y\nRUN c:\\\nCMD z\n"
    assert [entry.name for entry in read_instructions(text)] == ["FROM", "RUN", "RUN", "CMD"]


def test_a_here_document_that_never_ends_takes_the_rest() -> None:
    (_, run) = read_instructions("FROM a\nRUN <<EOF\nx\ny")
    assert run.documents[0].content == "x\ny"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a$X", "a1"),
        ("${X}b", "1b"),
        ("${N:-d}", "d"),
        ("${E:-d}", "d"),
        ("${E-d}", ""),
        ("${X:+y}", "y"),
        ("${N:+y}", ""),
        ("$N", None),
        ("${X%%.*}", "1"),
        ("${N:-${X}}", "1"),
        ("a\\b`c`", "a\\b`c`"),
        ("$(x)", None),
        ("plain", "plain"),
    ],
)
def test_variables(text: str, result: str | None) -> None:
    assert substitute(text, {"X": "1", "E": ""}.get) == result


def test_values_that_double_do_not_fill_the_memory() -> None:
    value: str | None = "xx"
    for _ in range(200):
        held = value
        value = substitute("$A$A", lambda _, held=held: held)  # type: ignore[misc]
    assert value is None


def test_assignments() -> None:
    assert read_assignments("A=1 B=\"2 3\" C='4' D=a\\ b") == [("A", "1"), ("B", "2 3"), ("C", "4"), ("D", "a b")]
    assert read_assignments("PATH /opt/bin:$PATH") == [("PATH", "/opt/bin:$PATH")]


def test_lines_end_where_a_builder_ends_them() -> None:
    text = "FROM a\n# a comment\u2028RUN b\x0bRUN c\r\nRUN\u00a0d\rRUN\te\n"
    assert [(one.name, one.line) for one in read_instructions(text)] == [("FROM", 1), ("RUN\u00a0D", 3), ("RUN", 4)]


@given(st.text(alphabet="FROM RUNa<EOF\n\\#$ {}='\"`", max_size=300))
def test_any_text_is_split(text: str) -> None:
    for instruction in read_instructions(text):
        assert instruction.line >= 1
