"""docs/threat-model.md and docs/faults.md name tests that are there, and one for every promise."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from tests.faults.desk import COMMANDS

PAGE = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE + FAULTS)
ROWS = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", PAGE + FAULTS, re.MULTILINE)]
COLUMNS = ["killed", "full disk", "read-only home", "two runs", "index", "clock"]
MATRIX = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 1 + len(COLUMNS)}
PROMISES = [
    " | ".join(row)
    for row in ROWS
    if len(row) != 1 + len(COLUMNS) and row[0] not in {"promise", "fault"} and row[:2] != ["command", "fault"]
]


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_promise_names_a_test() -> None:
    assert len(PROMISES) > 10
    assert [row for row in PROMISES if "::test_" not in row] == []


def test_every_command_that_is_disturbed_has_a_row_and_no_cell_is_empty() -> None:
    assert MATRIX.pop("command") == COLUMNS
    assert list(MATRIX) == list(COMMANDS)
    assert [name for name, cells in MATRIX.items() if not all(cell.strip() for cell in cells)] == []
    assert [row[0] for row in ROWS if row[0] in COLUMNS and "::test_" in row[1]] == COLUMNS


def test_the_page_can_be_found() -> None:
    assert "docs/threat-model.md" in (ROOT / "README.md").read_text(encoding="utf-8")
