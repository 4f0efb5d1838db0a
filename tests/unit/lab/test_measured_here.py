"""What was measured of a release says nothing of a commit that carries its number."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.lab.measured_here import installed_versions

COMMIT = "1234567890abcdef1234567890abcdef12345678"


@pytest.mark.parametrize(
    ("origin", "version"),
    [
        (None, "0.29.0"),
        ({"url": "https://x/y", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}, "0.29.0+git1234567890ab"),
        ({"url": "file:///", "dir_info": {"editable": True}}, "0.29.0+tree"),
    ],
)
def test_a_commit_is_not_the_release_of_its_number(tmp_path: Path, origin: object, version: str) -> None:
    info = tmp_path / "trl-0.29.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.29.0\n", encoding="utf-8")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    finding: Any = SimpleNamespace(facts=[Fact("trl", "0.29.0", "installed", (Source(str(info)),))])
    assert installed_versions(finding) == {"trl": version}
