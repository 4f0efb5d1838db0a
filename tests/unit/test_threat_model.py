"""docs/threat-model.md and docs/faults.md name tests that are there, and one for every promise."""

from __future__ import annotations

import re

import pytest

from tests import ROOT

PAGE = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE + FAULTS)
PROMISES = [
    row
    for row in re.findall(r"^\| (.*) \|$", PAGE + FAULTS, re.MULTILINE)
    if not row.startswith(("promise ", "command | fault"))
]


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_promise_names_a_test() -> None:
    assert len(PROMISES) > 10
    assert [row for row in PROMISES if "::test_" not in row] == []


def test_the_page_can_be_found() -> None:
    assert "docs/threat-model.md" in (ROOT / "README.md").read_text(encoding="utf-8")
