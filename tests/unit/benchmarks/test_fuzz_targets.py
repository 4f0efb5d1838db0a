"""Every target of the fuzzer exists and has seeds, and what it once crashed on is read or refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.fuzz.fuzz import ROOT, TARGETS, find_seeds, write_dictionary
from benchmarks.fuzz.structure import mutate_structure
from compatcheck.core.errors import CompatcheckError

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = sorted(ROOT.glob("fixtures/fuzz/*/*"))


def parser(name: str) -> Callable[[bytes | str], object]:
    module, _, function = TARGETS[name].function.partition(":")
    place = "benchmarks.fuzz.adapters" if module == "adapters" else f"compatcheck.{module}"
    found: Callable[[bytes | str], object] = getattr(import_module(place), function)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_targets_exist_and_have_seeds(name: str, tmp_path: Path) -> None:
    assert callable(parser(name))
    seeds = find_seeds(name)
    assert seeds
    write_dictionary(seeds, tmp_path / "words")
    assert (tmp_path / "words").read_text().count("\n") > 5


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kept_inputs_do_not_crash(path: Path) -> None:
    try:
        parser(path.parent.name)(path.read_bytes() if TARGETS[path.parent.name].takes_bytes else str(path))
    except CompatcheckError as error:
        assert error.hint


@pytest.mark.parametrize("form", ["toml", "json"])
def test_changed_documents_still_parse_mostly(form: str) -> None:
    tomllib = pytest.importorskip("tomllib")
    seed = find_seeds("poetry_lock" if form == "toml" else "pipfile_lock")[0].read_bytes()
    parsed = 0
    for number in range(40):
        changed = mutate_structure(seed, 60_000, number, form=form, mutate=lambda data, limit: data[:limit] + b"]")
        try:
            json.loads(changed) if form == "json" else tomllib.loads(changed.decode())
            parsed += 1
        except ValueError:
            continue
    assert parsed >= 25
