"""Every program has one record: what it is called, what it implies, what it is built on."""

from __future__ import annotations

import re

import pytest

from compatcheck.rules.program import KINDS
from compatcheck.rules.programs import find_program, lineage, programs, trainers
from tests import ROOT

READERS = re.compile(r'(?:make_document\(|Document\(|READER, LABEL = |READER = |reader=|reader = )\s*"([\w-]+)"')
"""How readers name themselves in documents."""


@pytest.mark.parametrize("name", programs())
def test_a_record_says_how_a_program_is_called_and_what_it_implies(name: str) -> None:
    program = find_program(name)
    assert program.name == name
    assert program.label
    assert program.kind in KINDS
    assert bool(program.packages) == (program.kind in {"program", "engine", "library", "base"})


def test_every_reader_has_a_record() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "compatcheck/frameworks").rglob("*.py")]
    named = {name for text in sources for name in READERS.findall(text)}
    assert {"accelerate", "deepspeed", "native", "script", "verl"} <= named
    assert named <= programs().keys(), "write rules/_programs/READER.yaml"


def test_what_a_program_is_built_on_comes_after_it() -> None:
    assert [program.name for program in lineage("axolotl")] == ["axolotl", "hf_trainer", "transformers"]
    assert [program.name for program in lineage("verl")] == ["verl"]


def test_a_name_without_a_record_says_nothing() -> None:
    (unheard,) = lineage("unheard")
    assert (unheard.kind, unheard.packages, unheard.inherits) == ("unknown", (), None)


def test_a_program_that_runs_the_loop_of_another_is_no_framework() -> None:
    assert {"verl", "accelerate", "custom"} <= set(trainers())
    assert not {"open_instruct", "transformers", "native", "model"} & set(trainers())
    assert {find_program(name).runs_as for name in ("open_instruct", "deepspeed_chat")} == {"accelerate", "deepspeed"}
