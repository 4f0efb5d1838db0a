"""What uv is asked, and what a project cannot make it do."""

from __future__ import annotations

import shutil

import pytest

from compatcheck.core.fix import RESOLVED
from compatcheck.fixing.resolver import UvResolver


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
def test_a_project_does_not_choose_where_uv_writes(tmp_path) -> None:
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = []\n'
    hostile = f'{project}[tool.uv]\ncache-dir = "{tmp_path}/hostile"\n'
    resolver = UvResolver(shutil.which("uv") or "")
    answer = resolver.lock({"pyproject.toml": hostile}, ())
    assert answer.verdict == RESOLVED
    assert not (tmp_path / "hostile").exists()
    assert resolver.asked == 1
