"""What `check` and `fix` advise holds in the own files of the programs, written so that they have each rule's example."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.program_matrix import read_programs
from tests.rules.written_programs import FORBIDDEN, cells, try_cell

CHOSEN = (
    ("accelerate/fsdp2-efficient-loading-holds-two-shards", "accelerate"),
    ("deepspeed/large-reduce-bucket", "llamafactory"),
    ("torch/ddp-gradients-beside-buckets", "ms-swift"),
    ("transformers/causal-lm-loss-in-float32", "axolotl"),
)
BY_NAME = {(rule.id, program.name): (rule, program) for rule, program in cells()}


def _try(cell: tuple[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    _, wrong = try_cell(*BY_NAME[cell])
    assert [f"{one.what}: {one.said}" for one in wrong if one.what in FORBIDDEN] == []


@pytest.mark.parametrize("cell", CHOSEN, ids=" ".join)
def test_what_is_advised_holds_in_the_files_of_a_program(
    cell: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _try(cell, tmp_path, monkeypatch)


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.parametrize("program", [one.name for one in read_programs()])
def test_what_is_advised_holds_for_every_rule(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, cell in enumerate(one for one in BY_NAME if one[1] == program):
        folder = tmp_path / str(number)
        folder.mkdir()
        _try(cell, folder, monkeypatch)
