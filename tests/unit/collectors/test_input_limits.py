"""What is too long, or does not say what it should, ends in an error or an entry of the report, never in hours or silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.conda.listing import read_conda_list
from compatcheck.collectors.locks.poetry_lock import read_poetry_lock
from compatcheck.collectors.requirements import lines as requirements
from compatcheck.collectors.requirements.pip_list import read_pip_list
from compatcheck.collectors.sbom.cyclonedx import read_cyclonedx_json
from compatcheck.core.errors import InputError
from compatcheck.core.toml import MAX_TOML_BYTES, read_toml


@pytest.mark.parametrize("read", [requirements.read_requirements, read_conda_list, read_pip_list])
def test_lists_have_an_end(tmp_path: Path, read: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(read)
    monkeypatch.setattr(requirements, "MAX_LINES", 10)
    path = tmp_path / "list.txt"
    path.write_text("torch==2.5.1\n" * 11)
    with pytest.raises(InputError, match="more than 10 lines"):
        read(str(path))


def test_a_large_toml_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "uv.lock"
    with path.open("wb") as file:
        file.truncate(MAX_TOML_BYTES + 1)
    with pytest.raises(InputError, match=r"at most 32\.0 MiB are read"):
        read_toml(str(path))


def test_an_entry_without_groups_is_said(tmp_path: Path) -> None:
    path = tmp_path / "poetry.lock"
    entry = '[[package]]\nname = "{}"\nversion = "1.0"\ngroups = {}\n\n'
    tail = '[metadata]\nlock-version = "2.1"\npython-versions = "*"\n'
    path.write_text(entry.format("torch", '"main"') + entry.format("numpy", '["main"]') + tail)
    environment = read_poetry_lock(str(path))
    assert set(environment.packages) == {"numpy"}
    assert not environment.complete
    assert [(skip.source.line, skip.reason, skip.named) for skip in environment.skipped] == [
        (2, "the entry of torch does not say in which groups it is", True)
    ]


def test_a_broken_component_of_a_named_sbom_counts_as_unread(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_text('{"bomFormat": "CycloneDX", "components": [3, {"name": "torch", "purl": "pkg:pypi/torch@2.5.1"}]}')
    (environment,) = read_cyclonedx_json(str(path))
    assert [skip.named for skip in environment.skipped] == [True]


def test_the_remedy_of_a_long_line_is_about_lines(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("torch" + "[" * 100_000)
    (skip,) = requirements.read_requirements(str(path)).skipped
    assert skip.hint == "write one requirement a line"
