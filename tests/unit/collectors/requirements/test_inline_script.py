"""Inline metadata of scripts (PEP 723) is found as the specification's own expression finds it, and read as ranges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.collectors.locks.uv_lock import read_uv_lock
from compatcheck.collectors.requirements.inline_script import find_blocks, read_script
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Selection
from tests import ROOT

FIXTURE = ROOT / "fixtures" / "environments" / "script" / "train.py"

SPECIFICATION = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
"""https://packaging.python.org/en/latest/specifications/inline-script-metadata/#reference-implementation"""


def test_requirements_are_ranges_with_lines() -> None:
    environment = read_script(str(FIXTURE))
    assert not environment.complete
    assert environment.packages["numpy"].specifier == "<2.3"
    assert environment.packages["requests"].details["extras"] == "socks"
    assert environment.packages["rich"].details["marker"] == 'python_version < "3.12"'
    assert environment.packages["requests"].source.line == 5
    assert any("train.py.lock pins" in note for note in environment.notes)


@pytest.mark.parametrize(("python", "rich"), [("3.10.4", True), ("3.12.4", False)])
def test_the_lock_of_a_script_starts_from_its_requirements(python: str, *, rich: bool) -> None:
    environment = read_uv_lock(f"{FIXTURE}.lock", selection=Selection(python=python))
    assert ("rich" in environment.packages) is rich
    assert {"numpy", "requests", "pysocks"} <= set(environment.packages)
    assert environment.complete


LINES = st.sampled_from(["# /// script", "# /// other", "# ///", "#", "# x = 1", "#x", "", "print()", "# /// "])


@settings(max_examples=300)
@given(st.lists(LINES, max_size=14))
def test_blocks_are_those_of_the_specification(lines: list[str]) -> None:
    text = "\n".join(lines)
    expected = [(match["type"], match["content"].split("\n")[:-1]) for match in SPECIFICATION.finditer(text)]
    assert [(kind, lines[first:last]) for kind, first, last in find_blocks(lines)] == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print()\n", "has no block"),
        ("# /// script\n# a = 1\n# ///\n\n# /// script\n# a = 1\n# ///\n", "has 2 blocks"),
        ("import x\n# /// script\n# dependencies = [\n# ///\n", "s.py:3"),
    ],
)
def test_malformed_blocks_name_the_place(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "s.py"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_script(str(path))


def test_odd_requirements_are_reported_and_do_not_lose_the_others(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    path.write_bytes(b"# /// script\r\n# dependencies = [1,\r\n#   'not one!',\r\n#   'torch==2.6.0']\r\n# ///\r\n")
    environment = read_script(str(path))
    assert environment.packages["torch"].version == "2.6.0"
    assert environment.packages["torch"].source.line == 4
    assert [entry.source.line for entry in environment.skipped] == [None, 3]


def test_many_openings_take_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    path.write_text("# /// script\n" * 250_000)
    with pytest.raises(InputError, match="has no block"):
        read_script(str(path))
