"""Bash itself as the oracle: snippets call ``run``, a function that records its words instead of running anything."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PRELUDE = 'run() { printf \'%s\\0\' "$#" "$@" >> "$RECORD"; }\n'


@pytest.fixture
def bash(tmp_path: Path) -> Callable[..., list[tuple[str, ...]]]:
    """Run a script; return the words of every ``run``, in order."""

    def execute(
        text: str, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> list[tuple[str, ...]]:
        record, place = tmp_path / "record", tmp_path / "place"
        record.write_bytes(b"")
        place.mkdir(exist_ok=True)
        (tmp_path / "prelude").write_text(PRELUDE)
        (tmp_path / "script").write_bytes(text.encode("utf-8", "surrogateescape"))
        environment = {
            "PATH": "/usr/bin:/bin",
            "BASH_ENV": str(tmp_path / "prelude"),
            "RECORD": str(record),
            "LC_ALL": "C.UTF-8",
        }
        subprocess.run(
            ["bash", str(tmp_path / "script"), *arguments],
            env={**environment, **(variables or {})},
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        fields = record.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
        result = []
        while fields:
            count = int(fields.pop(0))
            result.append(tuple(fields[:count]))
            del fields[:count]
        return result

    return execute
