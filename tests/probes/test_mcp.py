"""The server of the Model Context Protocol, asked by the client of its own SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from compatcheck.lab.environments.overlay import Overlays

CLIENT = """
import asyncio, json, os, sys
from mcp import Client, StdioServerParameters, stdio_client

async def main():
    server = ["-m", "compatcheck", "mcp", "--root", sys.argv[1]]
    parameters = StdioServerParameters(command=sys.executable, args=server, env=dict(os.environ))
    async with Client(stdio_client(parameters)) as client:
        tools = (await client.list_tools()).tools
        found = {"tools": {tool.name: tool.annotations.read_only_hint for tool in tools}, "answers": []}
        for name, given in json.loads(sys.argv[2]):
            result = await client.call_tool(name, given)
            found["answers"].append([bool(result.is_error), result.content[0].text])
    print(json.dumps(found))

asyncio.run(main())
"""
CASE = "cases/openrlhf-llama3-70b"
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
)


def ask(overlays: Overlays, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    interpreter = overlays.open(["mcp==2.3.0"])
    paths = (*interpreter.paths, str(ROOT), sysconfig.get_path("purelib"))
    done = subprocess.run(
        [interpreter.python, "-c", CLIENT, str(ROOT / "fixtures"), json.dumps(calls)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.versions
@pytest.mark.ci
def test_a_client_gets_the_answers_of_the_commands(overlays: Overlays) -> None:
    found = ask(
        overlays,
        ("check_files", {"paths": [CASE]}),
        ("estimate_run", {"paths": [CASE], "settings": {"training.micro_batch_size": 2}}),
        ("explain_out_of_memory", {"paths": [CASE], "message": MESSAGE}),
        ("explain_out_of_memory", {"message": MESSAGE}),
        ("check_files", {"paths": [CASE], "gpu": "8xH1000"}),
        ("check_files", {"paths": ["../README.md"]}),
        ("check_files", {"paths": [CASE], "model": "/etc/hostname"}),
        ("check_files", {"paths": [CASE], "training": ["/etc/hostname"]}),
        ("check_environment", {"prefix": ".."}),
    )
    assert set(found["tools"].values()) == {True}
    assert len(found["tools"]) == 4
    checked, estimated, explained, alone, *refused = found["answers"]
    assert [is_error for is_error, _ in (checked, estimated, explained, alone)] == [False] * 4
    assert "deepspeed/zero3-params-kept-in-backward" in checked[1]
    assert "does not fit" in estimated[1]
    assert "asked for 2.00 GiB" in explained[1]
    assert "asked for 2.00 GiB" in alone[1]
    assert [is_error for is_error, _ in refused] == [True] * 5
    assert "H1000" in refused[0][1]
    assert all("outside of" in text for _, text in refused[1:])
