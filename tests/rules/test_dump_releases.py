"""What the script that writes snapshots makes of what an index lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.services.releases import Release
from tests.rules import dump_releases


def test_pins_are_grouped_by_extra_and_limited_to_linux() -> None:
    lines = (
        "torch==2.6.0",
        'vllm==0.8.3; extra == "vllm"',
        'torch==2.5; sys_platform == "win32"',
        "ray[default]==2.43.0",
        "odd line !",
    )
    found = dump_releases.pinned(lines, lambda name: name in {"torch", "vllm", "ray"})
    assert found == {None: {"torch": "==2.6.0", "ray": "==2.43.0"}, "vllm": {"vllm": "==0.8.3"}}


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
