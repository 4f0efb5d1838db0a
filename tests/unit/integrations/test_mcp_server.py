"""The server of the Model Context Protocol reads below its directory and nowhere else, whatever it is asked."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("mcp")
CASE = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(CASE, tmp_path / "root")
    (tmp_path / "elsewhere.txt").write_text("deepspeed==0.16.4\n")
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    (tmp_path / "root" / "sub").mkdir()
    (tmp_path / "root" / "sub" / "requirements.txt").symlink_to(tmp_path / "elsewhere.txt")
    return tmp_path / "root"


def call(root: Path, tool: str, **arguments: Any) -> str:
    from compatcheck.integrations.mcp_server import make_server

    return str(asyncio.run(make_server(str(root)).call_tool(tool, arguments)))


def test_what_lies_below_is_checked(project: Path) -> None:
    assert "deepspeed/zero3-params-kept-in-backward" in call(project, "check_files", paths=["."])
    assert "(exit code 3)" in call(project, "explain_out_of_memory", message=os.fspath(CASE), paths=["facts.yaml"])


@pytest.mark.parametrize("path", ["../elsewhere.txt", "/etc/passwd", "link.txt", "a\0b", "-", "~", "none.txt"])
def test_what_lies_elsewhere_is_refused(project: Path, path: str) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    for arguments in ({"paths": [path]}, {"paths": ["."], "training": [path]}):
        with pytest.raises(ToolError, match=r"lies outside of|there is no"):
            call(project, "check_files", **arguments)
    with pytest.raises(ToolError, match=r"lies outside of|there is no"):
        call(project, "check_environment", prefix=path)


def test_what_links_lead_to_is_not_read(project: Path) -> None:
    assert "lies outside of the directory that may be read" in call(project, "check_files", paths=["sub"])


@pytest.mark.parametrize("arguments", [{"paths": []}, {"paths": ["."], "nodes": -1}, {"paths": ["."], "model": "a\0b"}])
def test_what_makes_no_sense_is_refused_with_a_reason(project: Path, arguments: dict[str, Any]) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    with pytest.raises(ToolError, match=r"no path is given|nodes is|there is no"):
        call(project, "check_files", **arguments)
