"""A file of packages inside an image reads as it does on disk, with the files it names."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.read import read_environments
from compatcheck.collectors.recognise import recognise_named, walk
from compatcheck.core.errors import NoEnvironmentError
from tests import ROOT
from tests.unit.collectors.image.trees import make_tree

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.environment import Environment
    from compatcheck.core.files import Files

FIXTURES = ROOT / "fixtures"
FOLDERS = sorted(
    path for path in (*(FIXTURES / "environments").iterdir(), FIXTURES / "configs/project") if path.is_dir()
)


def _read(path: str, kind: str, files: Files | None = None) -> tuple[Environment, ...] | str:
    try:
        return read_environments(path, kind) if files is None else read_environments(path, kind, files)
    except NoEnvironmentError as error:
        return str(error)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_file_reads_the_same_inside_an_image(tmp_path: Path, folder: Path) -> None:
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    kinds = {path: kind for path, kind in walk(str(copy)) if kind is not None}
    on_disk = {path: _read(path, kind) for path, kind in kinds.items()}
    tree = make_tree({str(path): path.read_bytes() for path in copy.rglob("*") if path.is_file()})
    shutil.rmtree(copy)
    for path, kind in kinds.items():
        assert recognise_named(path, tree) == kind
        assert _read(path, kind, tree) == on_disk[path]
    assert len(kinds) > 0
