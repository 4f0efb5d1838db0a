"""The server of the Model Context Protocol reads below its directory and nowhere else, whatever it is asked."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import threading
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


def test_a_message_alone_is_explained(project: Path) -> None:
    thread = "Llama-3-8B on one A100-80GB\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1002.00 MiB."
    shown = call(project, "explain_out_of_memory", message=thread)
    assert "1002" in shown
    assert "(exit code 0)" in shown
    assert "deepspeed" not in shown


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


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("check_files", r'{"paths": ["a\ud800b"]}'),
        ("check_files", r'{"paths": ["\ud83d\udc4d\udc4d"]}'),
        ("check_files", r'{"paths": ["."], "settings": {"training.zero_stage": "\uDFFF"}}'),
        ("explain_out_of_memory", r'{"message": "\\\ud800 out of memory", "paths": ["."]}'),
        ("check_\ud800", r'{"paths": ["."]}'),
        ("check_files", '{"paths": ' + "[" * 250 + "]" * 250 + "}"),
        ("check_files", '{"paths": ["."], "nodes": ' + "9" * 5000 + "}"),
        ("check_files", '{"paths": [".'),
    ],
)
def test_what_the_protocols_parser_does_not_read_is_answered(project: Path, name: str, arguments: str) -> None:
    start = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    called = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}),
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        f'{{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {called}}}',
    ]
    command = [sys.executable, "-m", "compatcheck", "mcp", "--root", str(project)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        alarm = threading.Timer(60, server.kill)  # what is not answered is not waited for
        alarm.start()
        server.stdin.write("\n".join([*lines, ""]))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline() or "{}") for _ in range(2)]
        server.stdin.close()
        alarm.cancel()
    assert [answer.get("id") for answer in answers] == [1, 2]
    assert "error" in answers[1] or "content" in answers[1]["result"]


REQUEST = '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": %s}'


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        (REQUEST % "[]", [2]),
        (REQUEST % '"x"', [2]),
        ('{"jsonrpc": "2.0", "id": 2}', [2]),
        ('{"jsonrpc": "2.0", "id": 2, "method": 5}', [2]),
        ('{"id": "a\\"b", "method": "ping"}', ['a"b']),
        ('{"jsonrpc": "2.0", "params": {"id": 7, "x": ' + "[" * 300 + "]" * 300 + '}, "method": "ping", "id": 2}', [2]),
        ('{"jsonrpc": "2.0", "params": {"id": 7}, "method": "ping", "id": 2', [2]),
        ('[{"jsonrpc": "2.0", "id": 2, "method": "ping"}, {"id": 3, "params": {"id": 4}}]', [2, 3]),
        ('{"jsonrpc": "2.0", "id": "' + "z" * 300 + '", "method":', ["z" * 300]),
    ],
)
def test_what_has_an_id_and_is_no_request_is_answered_with_it(line: str, ids: list[object]) -> None:
    from compatcheck.integrations.mcp_server import ReadableLines

    read = ReadableLines(io.BytesIO(f"{line}\n".encode())).read1().splitlines()
    asked = [json.loads(one) for one in read]
    assert [one["id"] for one in asked] == ids
    assert all(" " in one["method"] for one in asked)


@pytest.mark.parametrize(
    "line", ["garbage", "", '{"jsonrpc": "2.0", "method": "notifications/cancelled"}', REQUEST % "{}"]
)
def test_other_lines_stay(line: str) -> None:
    from compatcheck.integrations.mcp_server import ReadableLines

    assert ReadableLines(io.BytesIO(f"{line}\n".encode())).read1() == f"{line}\n".encode()


def test_whole_characters_and_backslashes_stay() -> None:
    from compatcheck.integrations.mcp_server import ReadableLines

    given = rb'"\ud83d\udc4d \\ud800 \n \u00e4" "\ud800" "\\\udc00"'
    assert ReadableLines(io.BytesIO(given)).read1() == rb'"\ud83d\udc4d \\ud800 \n \u00e4" "\ufffd" "\\\ufffd"'
