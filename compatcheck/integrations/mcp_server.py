"""`compatcheck mcp`: the same answers for an assistant, over the Model Context Protocol on standard input and output.

Every tool reads; none writes, fetches or runs anything. Paths are confined to the directory the server was started for, and so is
what the files there include, source and link to; of models the hub's cache is read, too.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations, jsonrpc_message_adapter
from pydantic import Field
from pydantic_core import from_json, to_json

from compatcheck import __version__
from compatcheck.core.errors import CompatcheckError
from compatcheck.core.redaction import redact
from compatcheck.core.terminal import make_harmless
from compatcheck.integrations.answers import check, estimate, explain_oom

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatcheck.integrations.answers import Answer

INSTRUCTIONS = (
    "Tells whether a training stack (PyTorch, DeepSpeed, transformers, TRL, verl, …) will run out of GPU memory, which "
    "release or setting is to blame, what it costs this model in GiB, and what to change. Give it requirement files or "
    "locks, training configurations and launch scripts of the project, the model (a hub id or config.json) and the "
    "devices (8xH100-80GB); what an answer asks for, state by `settings`."
)
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

Paths = Annotated[list[str], Field(description="Files or directories of the project, relative to its root.")]
Training = Annotated[list[str], Field(description="Training configurations and launch scripts beside them.")]
Model = Annotated[
    str | None, Field(description="Hub id of a known model, or a directory or config.json of the project.")
]
Gpu = Annotated[str | None, Field(description="Devices: 8xH100-80GB, A100-40GB, or an instance such as p5.48xlarge.")]
Nodes = Annotated[int | None, Field(description="Machines of the run.")]
Settings = Annotated[
    dict[str, str | int | float | bool], Field(description="Facts that no file states, such as training.zero_stage: 3.")
]


_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)")
_LONE = 6
"""Length of the escape of one half of a character; a whole one has two."""


_TOKEN = re.compile(rb'[\[{]|[\]}]|"(?:[^"\\]|\\.)*"')
_ID = re.compile(rb'\s*:\s*(-?[0-9]{1,1000}(?![0-9.eE])|"(?:[^"\\]|\\.){0,1000}")')
"""What stands behind the key of a request's own id; what is longer is none."""


class ReadableLines(io.BufferedIOBase):
    """Lines of JSON that the protocol's own parser reads; what it cannot read it drops, and whoever asked waits for ever.

    A half of a character, which no text can hold, is the sign for one that is not known. What has the id of a request and is none
    (no JSON, too deep, too long a number, no method, several in a list) becomes one for a method that there is not: its answer
    says why.
    """

    def __init__(self, source: BinaryIO) -> None:
        """Take what the lines are read from."""
        self._source = source

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def read1(self, _: int = -1) -> bytes:
        """Return a line."""
        line = _ESCAPE.sub(_make_whole, self._source.readline())
        try:
            jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            asked = _find_ids(line)
        else:
            return line
        try:
            from_json(line)
            why = "is no request: it has jsonrpc, a method and params by name, and stands alone in its line"
        except ValueError as error:
            why = f"no JSON to be read: {error}"
        return b"".join(b'{"jsonrpc": "2.0", "id": %s, "method": %s}\n' % (one, to_json(why)) for one in asked) or line


def _find_ids(line: bytes) -> list[bytes]:
    """Return the ids of what asks in a line that may be no JSON: not those that stand in its parameters."""
    depth, own = 0, 2 if line.lstrip().startswith(b"[") else 1
    found: list[bytes] = []
    for token in _TOKEN.finditer(line):
        if token[0] in b"[{":
            depth += 1
        elif token[0] in b"]}":
            depth -= 1
        elif depth == own and token[0] == b'"id"' and (stated := _ID.match(line, token.end())):
            found.append(stated[1])
    return found


def _make_whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if len(escape[0]) == _LONE else escape[0]


def serve(root: str) -> None:
    """Answer what standard input asks about what lies below a directory, until it ends."""
    sys.stdin = io.TextIOWrapper(ReadableLines(sys.stdin.buffer), encoding="utf-8", errors="replace")
    make_server(root).run()


def make_server(root: str) -> MCPServer:
    """Return a server whose tools read what lies below a directory."""
    server = MCPServer("compatcheck", version=__version__, instructions=INSTRUCTIONS)
    real = os.path.realpath(root)

    def confine(path: str) -> str:
        whole = real if "\0" in path else os.path.realpath(os.path.join(real, path))
        if os.path.commonpath((real, whole)) != real:
            raise _refusal(f"{path} lies outside of {real}, the directory that this server reads")
        if "\0" in path or not os.path.exists(whole):
            raise _refusal(f"there is no {path!r} in {real}")
        return whole

    def confine_all(paths: list[str]) -> list[str]:
        if not paths:
            raise ToolError("no path is given: name files or directories of the project, or . for all of it")
        return [confine(path) for path in paths]

    def asked(training: list[str], model: str | None, **others: Any) -> dict[str, Any]:  # noqa: ANN401 (of several kinds)
        found = {name: value for name, value in others.items() if value is not None}
        if model is not None:
            is_here = "\0" in model or os.path.exists(os.path.join(real, model))
            found["model"] = confine(model) if is_here else _require_id(model)
        return {**found, "training": [confine(path) for path in training], "here": False, "within": real}

    def answer(ask: Callable[[], Answer[Any]]) -> str:
        try:
            given = ask()
        except CompatcheckError as error:
            raise ToolError(redact(f"{error}" + (f"\n{error.hint}" if error.hint else ""))) from None
        return make_harmless(f"{given}\n(exit code {given.exit_code})")

    def check_files(
        paths: Paths,
        training: Training = [],  # noqa: B006 (read only; the protocol shows it)
        model: Model = None,
        gpu: Gpu = None,
        nodes: Nodes = None,
        settings: Settings = {},  # noqa: B006 (see above)
    ) -> str:
        """Check requirement files, locks, configurations and launch scripts: findings with their cause, size in GiB and fix."""
        files = confine_all(paths)
        return answer(lambda: check(*files, **asked(training, model, gpu=gpu, nodes=nodes, settings=settings)))

    def estimate_run(
        paths: Paths,
        training: Training = [],  # noqa: B006 (see above)
        model: Model = None,
        gpu: Gpu = None,
        nodes: Nodes = None,
        settings: Settings = {},  # noqa: B006 (see above)
    ) -> str:
        """Estimate what each device holds, phase by phase, whether the run fits, and which changes would make it fit."""
        files = confine_all(paths)
        given = asked(training, model, gpu=gpu, nodes=nodes, settings=settings)
        return answer(lambda: estimate(*files, suggest=True, **given))

    def explain_out_of_memory(
        message: Annotated[
            str, Field(description="The error with its traceback, the part of the log around it, or a pasted issue.")
        ],
        paths: Paths = [],  # noqa: B006 (see above)
        training: Training = [],  # noqa: B006 (see above)
        model: Model = None,
        gpu: Gpu = None,
        settings: Settings = {},  # noqa: B006 (see above)
    ) -> str:
        """Name the tensor whose size was asked for, the phase and the cause of a CUDA out-of-memory message.

        The message alone is enough; what else is known of the run (its files, model, devices) lets more tensors be tried.
        """
        files = [confine(path) for path in paths]
        given = asked(training, model, gpu=gpu, settings=settings)
        return answer(lambda: explain_oom(message + "\n", *files, **given))

    def check_environment(
        prefix: Annotated[str, Field(description="A virtual environment of the project, such as .venv.")],
        training: Training = [],  # noqa: B006 (see above)
        model: Model = None,
        gpu: Gpu = None,
        nodes: Nodes = None,
        settings: Settings = {},  # noqa: B006 (see above)
    ) -> str:
        """Check what is installed in a virtual environment of the project; its metadata is read and nothing of it is run."""
        place = confine(prefix)
        given = asked(training, model, gpu=gpu, nodes=nodes, settings=settings)
        return answer(lambda: check(prefix=place, **given))

    for tool, title in (
        (check_files, "Check files for known memory regressions"),
        (estimate_run, "Estimate the memory of a run"),
        (explain_out_of_memory, "Explain an out-of-memory error"),
        (check_environment, "Check an installed environment"),
    ):
        server.add_tool(tool, title=title, annotations=_READS, structured_output=False)
    return server


def _refusal(text: str) -> ToolError:
    """Return an error that says what was asked without credentials and control characters."""
    return ToolError(make_harmless(text))


def _require_id(model: str) -> str:
    """Let a hub id pass, and no path: that would be one outside.

    Raises:
        ToolError: it names a file or directory.
    """
    if os.path.isabs(model) or model.startswith((".", "~")) or os.path.exists(model):
        raise _refusal(f"{model} lies outside of the directory that this server reads")
    return model
