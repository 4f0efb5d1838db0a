"""Constants that a script imports from modules of its project."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.files import LOCAL
from compatcheck.frameworks.python_script.constants import with_constants

if TYPE_CHECKING:
    from pathlib import Path


def written(root: Path, module: str, names: str) -> list[str]:
    (root / "config.py").write_text(module)
    tree = with_constants(ast.parse(f"from config import {names}"), str(root / "train.py"), LOCAL)
    return [ast.unparse(node) for node in tree.body[1:]]


def test_literals_are_written_out_behind_their_import(tmp_path: Path) -> None:
    module = "SIZE = 2 * 4\nNAMES = ['a', -1]\nBOTH = {'size': SIZE, 'names': NAMES}\n"
    assert written(tmp_path, module, "SIZE as S, BOTH") == ["S = 2 * 4", "BOTH = {'size': 2 * 4, 'names': ['a', -1]}"]


def test_what_is_no_literal_or_bound_again_is_not(tmp_path: Path) -> None:
    module = "A = open('a')\nB = 1\nB = 2\nC = [A]\nfor D in range(3):\n    pass\n"
    assert written(tmp_path, module, "A, B, C, D, E") == []


def test_names_that_name_one_another_many_times_over_end(tmp_path: Path) -> None:
    levels = [f"N{at} = [{', '.join([f'N{at + 1}'] * 100)}]" for at in range(7)]
    assert written(tmp_path, "\n".join([*levels, "N7 = 1", "X = 1"]), "N0") == []
