"""What the script that writes snapshots makes of what an index lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.services.releases import IndexFile, Release
from tests.rules import dump_releases


def test_pins_are_what_a_release_itself_requires_on_linux() -> None:
    lines = (
        "torch==2.6.0",
        'vllm==0.8.3; extra == "vllm"',
        'torch==2.5; sys_platform == "win32"',
        "ray[default]==2.43.0",
        "peft",
        "outlines==0.1.11",
        "tqdm>=4",
        "flash_attn @ https://host/flash_attn-2.8.3-cp311.whl",
        "odd line !",
    )
    found = dump_releases.pinned(lines, dump_releases.is_kept)
    assert found == {"outlines": "==0.1.11", "ray": "==2.43.0", "torch": "==2.6.0"}


def test_extras_are_kept_where_they_are_named_after_what_they_bring() -> None:
    lines = (
        "torch==2.6.0",
        'vllm<=0.12.0,>=0.8.5; extra == "vllm"',
        'tensordict<=0.10.0; extra == "vllm"',
        'liger-kernel>=0.5; extra == "gpu"',
        'torch==2.9.1; extra == "torch"',
    )
    assert dump_releases.brought(lines, dump_releases.is_kept) == {"vllm": "<=0.12.0,>=0.8.5"}


def test_pins_have_a_row_for_each_run_of_releases_that_require_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = {"0.9": "2020-01-01", "1.0": "2024-01-01", "1.1": None, "2.0": "2024-01-03"}
    found = (*(Release(*row, yanked=False, prerelease=False) for row in dates.items()),)
    rc = Release("2.0rc1", None, yanked=False, prerelease=True)
    monkeypatch.setattr(dump_releases, "fetch_releases", lambda _: (*found, rc))
    files = [IndexFile(f"demo-{release}-py3-none-any.whl", "", None, yanked=False) for release in ("1.0", "1.1")]
    monkeypatch.setattr(dump_releases, "list_files", lambda _: files)
    monkeypatch.setattr(dump_releases, "read_requirements", lambda _, release: (f"torch=={release[0]}",))
    assert dump_releases.write_pins("demo", tmp_path, "2026-11-21").read_text().splitlines()[3:] == [
        "rows:",
        '  - versions: ["1.0", "1.1"]',
        '    requires: {torch: "==1"}',
        '  - versions: ["2.0"]',
        "    source: sdist",
        '    requires: {torch: "==2"}',
    ]


def test_snapshot_lists_every_release_and_marks_the_special_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (
        Release("1.0", "2024-01-01", yanked=False, prerelease=False),
        Release("1.1", None, yanked=True, prerelease=False),
        Release("2.0rc1", None, yanked=False, prerelease=True),
    )
    monkeypatch.setattr(dump_releases, "fetch_releases", lambda _: found)
    path = dump_releases.write_snapshot("demo", tmp_path, "2026-11-21")
    assert path.read_text().splitlines() == [
        "package: demo",
        'date: "2026-11-21"',
        "releases:",
        '  "1.0": "2024-01-01"',
        '  "1.1": null',
        '  "2.0rc1": null',
        'prereleases: ["2.0rc1"]',
        'yanked: ["1.1"]',
    ]
